// SPDX-License-Identifier: MIT
// Buffers that one driver owns and others use. Linux: <linux/dma-buf.h>, drivers/dma-buf/dma-buf.c; names and locking rules as there: pin,
// unpin, map and unmap of an exporter, and invalidate_mappings of an importer, run with the buffer's reservation held; the others without.
//
// Memory is this process's own, so that an exporter says where it lies in it; the importer maps it for its device (umem_dmabuf.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernel/mm/dma_resv.h"

namespace uhca::kernel::mm {

class DmaBuf;
class DmaBufAttachment;

struct SgEntry {
  std::byte* memory = nullptr;
  std::size_t length = 0;  // bytes, whole pages
};
// The buffer as it lies now, from its first byte to its last. Linux: struct sg_table.
struct SgTable {
  virtual ~SgTable() = default;  // exporters add what they must give back
  std::vector<SgEntry> entries;
};

// What mmap(2) was asked for; within the buffer's size.
struct UserMapping {
  std::uintptr_t addr = 0;
  std::size_t length = 0;
  int prot = 0, flags = 0;
  std::uint64_t offset = 0;  // in the buffer
};

// What an exporter is asked for. Linux: struct dma_buf_ops.
class DmaBufExporter {
 public:
  virtual ~DmaBufExporter() = default;  // Linux: release

  // Whose it is: a driver that gets a buffer of its own back knows it by this. Linux: dma_buf->ops == &own_ops.
  virtual const void* driver() const { return nullptr; }
  // A refusal is what whoever attaches gets.
  virtual Status attach(DmaBufAttachment&) { return success(); }
  virtual void detach(DmaBufAttachment&) {}
  // Whether the buffer may move between pin and unpin's times (it then calls invalidate_mappings). Exporters without are never asked to
  // pin.
  virtual bool has_pin() const { return false; }
  virtual Status pin(DmaBufAttachment&) { return success(); }
  virtual void unpin(DmaBufAttachment&) {}
  virtual Result<std::unique_ptr<SgTable>> map(DmaBufAttachment&) = 0;
  virtual void unmap(DmaBufAttachment&, std::unique_ptr<SgTable>) {}
  // The program is about to use, or has used, the memory itself (DMA_BUF_IOCTL_SYNC).
  virtual Status begin_cpu_access(bool read, bool write) {
    static_cast<void>(read), static_cast<void>(write);
    return success();
  }
  virtual Status end_cpu_access(bool read, bool write) {
    static_cast<void>(read), static_cast<void>(write);
    return success();
  }
  // The program maps the buffer: the address. Linux: an exporter without gets EINVAL.
  virtual Result<std::uintptr_t> mmap(const UserMapping&);
};

// What an importer lets the exporter know. Linux: struct dma_buf_attach_ops.
struct DmaBufAttachOps {
  bool allow_peer2peer = false;
  // The memory is about to move or to go: from when this returns, no DMA reaches it; map again. nullptr: an importer that pins.
  void (*invalidate_mappings)(DmaBufAttachment&) = nullptr;
};

class DmaBufAttachment {
 public:
  DmaBuf& dmabuf() const { return *dmabuf_; }
  bool peer2peer = false;
  void* importer_priv = nullptr;
  void* exporter_priv = nullptr;
  bool is_dynamic() const { return ops_ != nullptr; }

 private:
  friend class DmaBuf;
  std::shared_ptr<DmaBuf> dmabuf_;
  const DmaBufAttachOps* ops_ = nullptr;
};

class DmaBuf : public std::enable_shared_from_this<DmaBuf> {
 public:
  // Linux: dma_buf_export. `size` in bytes. `resv`: that of what is exported, if it has one of its own.
  static std::shared_ptr<DmaBuf> make(std::unique_ptr<DmaBufExporter> exporter, std::size_t size, std::string name,
                                      std::shared_ptr<DmaResv> resv = nullptr);
  ~DmaBuf();

  std::size_t size() const { return size_; }
  const std::string& name() const { return name_; }
  DmaResv& resv() { return *resv_; }
  DmaBufExporter& exporter() { return *exporter_; }

  // dma_buf_dynamic_attach; without ops, dma_buf_attach. The exporter's refusal.
  Result<DmaBufAttachment*> attach(const DmaBufAttachOps* ops, void* importer_priv);
  static void detach(DmaBufAttachment* a);  // nothing is mapped any more
  // The rest with resv held.
  Status pin(DmaBufAttachment& a);
  void unpin(DmaBufAttachment& a);
  // Importers without ops have it pinned meanwhile, and wait for the exporter's own fences.
  Result<std::unique_ptr<SgTable>> map_attachment(DmaBufAttachment& a);
  void unmap_attachment(DmaBufAttachment& a, std::unique_ptr<SgTable> sgt);
  void invalidate_mappings();
  const std::list<DmaBufAttachment*>& attachments() const { return attachments_; }

 private:
  DmaBuf(std::unique_ptr<DmaBufExporter> exporter, std::size_t size, std::string name, std::shared_ptr<DmaResv> resv);
  bool pins_on_map(const DmaBufAttachment& a) const { return exporter_->has_pin() && !a.is_dynamic(); }

  std::unique_ptr<DmaBufExporter> exporter_;
  const std::size_t size_;
  const std::string name_;
  const std::shared_ptr<DmaResv> resv_;
  std::list<DmaBufAttachment*> attachments_;  // under resv
};

// ---------------------------------------------------------------- descriptors (dma_buf_file.cpp)

// A descriptor that will be a buffer's: close-on-exec, known by its inode. Until it is bound it is none's.
class DmaBufFile {
 public:
  // EMFILE, ENFILE, ENOMEM. The program's from now on.
  static Result<DmaBufFile> reserve();
  // The descriptor keeps the buffer until its last duplicate is closed.
  Status bind(std::shared_ptr<DmaBuf> buf);
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  std::uint64_t dev_ = 0, ino_ = 0;
};
// A new descriptor of the buffer. Linux: dma_buf_fd.
Result<int> dma_buf_fd(std::shared_ptr<DmaBuf> buf);
// What a descriptor is of. EBADF: none; EINVAL: of no dma-buf, or of one that another process has made. A dma-buf of the host's kernel
// (udmabuf, a GPU's) is mapped, and stands for itself. Linux: dma_buf_get.
Result<std::shared_ptr<DmaBuf>> dma_buf_get(int fd);

// For the system-call surface. False: no descriptor of ours is open, and nothing need be looked up.
bool dma_buf_any_files();
// Whether fstat's answer can be that of one: cheap, no system call.
bool dma_buf_plausible(const struct stat& st);
std::shared_ptr<DmaBuf> dma_buf_of_fd(int fd);  // ours only; nullptr
// DMA_BUF_IOCTL_*: what ioctl(2) answers.
Status dma_buf_ioctl(DmaBuf& buf, unsigned long request, std::uint64_t arg);
// After a descriptor went away: buffers whose last one is gone are let go.
void dma_buf_reap();
void dma_buf_forget_after_fork();

}  // namespace uhca::kernel::mm
