// SPDX-License-Identifier: MIT
// What the kernel answers on a NETLINK_RDMA socket. Linux: drivers/infiniband/core/nldev.c.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kernel/core/ib_verbs.h"

namespace uhca::sys {

// Answers to the messages in `request` (one or more nlmsghdr), as one buffer per datagram appended through `send`.
// `portid` is the netlink address of the asking socket.
void netlink_answer(kernel::ib_device& dev, std::string_view request, std::uint32_t portid,
                    void (*send)(void* context, const void* data, std::size_t n), void* context);

void netlink_after_fork();

}  // namespace uhca::sys
