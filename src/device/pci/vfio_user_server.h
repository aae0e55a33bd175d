// SPDX-License-Identifier: MIT
// The home of a device that a vfio-user client uses: one thread that serves the socket, the engine's timers and the port's frames.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "device/pci/vfio_user_device.h"
#include "wire/net/port.h"

namespace uhca::pci::vfio_user {

class Server {
 public:
  // All must outlive it.
  Server(Device& device, Engine& engine, wire::Port& port) : device_(device), engine_(engine), port_(port) {}
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Binds the socket. A file of a server that is gone is replaced; EADDRINUSE: somebody listens there.
  Status listen(const std::string& path);
  // Serves one client after another until `stop_fd` becomes readable. Further clients wait in the socket's queue.
  Status run(int stop_fd);

 private:
  void accept_client();
  void resume_accepting();
  void accept_later(int error);
  void drop_client();
  void serve_client();
  bool work();
  Status watch(int fd, std::uint32_t events);
  void update_client_interest();

  Device& device_;
  Engine& engine_;
  wire::Port& port_;
  std::string path_;
  int listen_ = -1;
  int epoll_ = -1;
  Nanos accept_again_ = kNever;  // when the socket is looked at again, after accepting has failed
  std::unique_ptr<Channel> client_;
  bool client_wants_out_ = false;
  bool backlog_ = false;  // whole messages may have been read from the socket and not looked at: it will not wake us for them
};

}  // namespace uhca::pci::vfio_user
