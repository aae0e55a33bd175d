// SPDX-License-Identifier: MIT
// What the files of libibverbs share among themselves; nothing here is seen by programs or providers.
#pragma once

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "uapi/rdma_next.h"
#include "user/verbs/cmd.h"
#include "user/verbs/provider.h"

// The header turns these names into inline functions; this library defines the functions themselves.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_get_device_list

// Exported, but in no installed header (librdmacm declares them in private ones).
extern "C" const char* ibv_get_sysfs_path();
extern "C" int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, std::size_t size);

#define UHCA_EXPORT extern "C" __attribute__((visibility("default")))
// Binds the function `impl` of this file to the exported pair name@version (name@@version for the default one). The assembler
// directive, not the attribute: clang lacks the latter.
#define UHCA_SYMVER(impl, name, version) __asm__(".symver " #impl "," #name "@" version)

namespace uhca::verbs {

// Methods that have a write() fallback. Once the kernel says that it lacks one (EPROTONOSUPPORT, or ENOTTY for all of them), the context
// does not ask again.
enum class Method : unsigned {
  kGetContext,
  kQueryPort,
  kQueryGid,
  kDeallocPd,
  kRegMr,
  kDeregMr,
  kDeallocMw,
  kDestroyAh,
  kCloseXrcd,
  kCreateCq,
  kDestroyCq,
  kCreateSrq,
  kDestroySrq,
  kCreateWq,
  kDestroyWq,
  kCreateQp,
  kDestroyQp,
  kDestroyFlow,
  kDestroyRwqIndTable,
  kCount,
};

enum class Outcome { kSuccess, kError, kTryWrite, kTryWriteEx };

}  // namespace uhca::verbs

// The library's private part of a context (verbs_context.priv of the v44 header names this type).
struct verbs_ex_private {
  unsigned unsupported_methods;  // bit per Method; __atomic builtins
  std::uint32_t driver_id;
  bool use_ioctl_write;  // INVOKE_WRITE works
  bool imported;         // the cmd_fd came from another process: no write() fallbacks for objects with an event fd
  verbs_context_ops ops;
};
static_assert(static_cast<unsigned>(uhca::verbs::Method::kCount) <= 32);

namespace uhca::verbs {

inline verbs_ex_private* get_priv(ibv_context* context) {
  return verbs_context_of(context)->v.priv;
}
inline const verbs_context_ops* get_ops(ibv_context* context) {
  return &get_priv(context)->ops;
}

// errno = e and returns it: the shape of most failures.
inline int fail(int e) {
  errno = e;
  return e;
}
template <class T>
T* fail_null(int e) {
  errno = e;
  return nullptr;
}

// Executes cmd (with the attributes of `driver` behind it) or says which write command to try instead; *ret is the result unless a write is
// to be tried.
Outcome execute_with_fallback(ibv_context* context, Method method, ibv_command_buffer* cmd, const ibv_command_buffer* driver, int* ret);

// A legacy write command: INVOKE_WRITE when the kernel has it, else write(). core_in begins with the u64 `response`, which is
// filled here, when the command has a response. Sizes in bytes. 0 or a positive errno.
int execute_write_raw(ibv_context* context, unsigned command, void* core_in, std::size_t core_in_len, void* core_out,
                      std::size_t core_out_len, const verbs_udata* udata);
// The same for extended commands (no response member in the request). Variable-sized requests give their real length.
int execute_write_ex_raw(ibv_context* context, unsigned command, const void* core_in, std::size_t core_in_len, void* core_out,
                         std::size_t core_out_len, const verbs_udata* udata);

template <class Req, class Resp>
int execute_write(ibv_context* context, unsigned command, Req* req, Resp* resp, const verbs_udata* udata = nullptr) {
  static_assert(offsetof(Req, response) == 0);
  return execute_write_raw(context, command, req, sizeof *req, resp, sizeof *resp, udata);
}
// For commands without a response.
template <class Req>
int execute_write_req(ibv_context* context, unsigned command, Req* req, const verbs_udata* udata = nullptr) {
  return execute_write_raw(context, command, req, sizeof *req, nullptr, 0, udata);
}

// Does the kernel carry write commands inside ioctls? Asked once per context.
bool has_ioctl_write(ibv_context* context);

// True when a destroy command has failed for good. EIO counts as success when the environment allows it (then *ret becomes 0, and true is
// returned as well: there are no event counters to wait for).
inline bool is_destroy_error(int* ret) {
  if (*ret == EIO && verbs_allow_disassociate_destroy()) {
    *ret = 0;
    return true;
  }
  return *ret != 0;
}

// ops.cpp: every operation answers "not supported" until a provider supplies it.
extern const verbs_context_ops unsupported_ops;
// Fills what belongs to the library in the program-visible tables; after every alloc_context/import_context.
void set_library_ops(verbs_context_v65* vctx);

// device.cpp
void device_hold(ibv_device* device);
void device_put(ibv_device* device);

// sysfs.cpp: reads a small file below a directory descriptor (AT_FDCWD for a path). Length without the newline, or -1 with errno;
// a file that fills buf entirely is an error.
int read_sysfs_file_at(int dirfd, const char* file, char* buf, std::size_t size);

// discovery_*.cpp: the devices of this moment, as a list that the caller owns (free() each). 0 or a positive errno.
int find_devices_netlink(verbs_sysfs_dev** list);
int find_devices_sysfs(verbs_sysfs_dev** list);
// Reads dev and abi_version of one uverbs directory into dev; false when it is not usable.
bool read_uverbs_dir(int dirfd, const char* uverbs_name, verbs_sysfs_dev* dev);
// Is /dev/infiniband/<sysfs_name> there?
bool cdev_exists(const verbs_sysfs_dev* dev);
enum ibv_node_type decode_node_type(unsigned kernel_type);
void free_sysfs_devs(verbs_sysfs_dev* list);
// RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK: does the kernel copy pinned pages for the child of a fork?
bool kernel_copies_on_fork();

// gid.cpp. fallback_mask: which members the sysfs fallback shall fill (GID 1, TYPE 2, NDEV 4).
inline constexpr unsigned kGidAttrGid = 1, kGidAttrType = 2, kGidAttrNdev = 4;
int query_gid_entry(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry, std::uint32_t flags,
                    std::size_t entry_size, unsigned fallback_mask);

// verbs.cpp
int query_port_clipped(ibv_context* context, std::uint8_t port_num, ibv_port_attr* attr, std::size_t attr_len);

// neigh.cpp: the Ethernet address of `dst` as reached from the local address `src` (both 4 or 16 bytes, network order), and the VLAN id of
// the outgoing device (0xffff when untagged). 0, or a negative errno.
int resolve_neighbour(int src_family, const void* src, int dst_family, const void* dst, std::uint8_t mac[6], std::uint16_t* vid);

// log.cpp: reads VERBS_LOG_LEVEL and VERBS_LOG_FILE once.
void init_log();
// Should warnings about missing drivers be shown (IBV_SHOW_WARNINGS, or VERBS_LOG_LEVEL of 2 and more)?
bool show_warnings();

// The ABI of /dev/infiniband/uverbsN. Always 6 with kernels of this decade.
inline constexpr int kMinUverbsAbi = 3, kMaxUverbsAbi = 6;

}  // namespace uhca::verbs
