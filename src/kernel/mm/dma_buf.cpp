// SPDX-License-Identifier: MIT
#include "kernel/mm/dma_buf.h"

#include <utility>

#include "base/log.h"
#include "base/trace.h"

namespace uhca::kernel::mm {

Result<std::uintptr_t> DmaBufExporter::mmap(const UserMapping&) {
  return refuse(EINVAL, "mmap: the exporter of this dma-buf does not map it");
}

DmaBuf::DmaBuf(std::unique_ptr<DmaBufExporter> exporter, std::size_t size, std::string name, std::shared_ptr<DmaResv> resv)
    : exporter_(std::move(exporter)), size_(size), name_(std::move(name)), resv_(resv ? std::move(resv) : std::make_shared<DmaResv>()) {}

DmaBuf::~DmaBuf() {
  if (trace::on()) trace::Event("dmabuf", "release").str("buf", name_).unum("size", size_);
}

std::shared_ptr<DmaBuf> DmaBuf::make(std::unique_ptr<DmaBufExporter> exporter, std::size_t size, std::string name,
                                     std::shared_ptr<DmaResv> resv) {
  if (trace::on()) trace::Event("dmabuf", "export").str("buf", name).unum("size", size);
  return std::shared_ptr<DmaBuf>(new DmaBuf(std::move(exporter), size, std::move(name), std::move(resv)));
}

Result<DmaBufAttachment*> DmaBuf::attach(const DmaBufAttachOps* ops, void* importer_priv) {
  auto a = std::make_unique<DmaBufAttachment>();
  a->dmabuf_ = shared_from_this();
  a->ops_ = ops;
  a->importer_priv = importer_priv;
  a->peer2peer = ops != nullptr && ops->allow_peer2peer;
  UHCA_CHECK(exporter_->attach(*a));
  std::lock_guard g(*resv_);
  attachments_.push_back(a.get());
  if (trace::on()) trace::Event("dmabuf", "attach").str("buf", name_).flag("dynamic", a->is_dynamic()).flag("peer2peer", a->peer2peer);
  return a.release();
}

void DmaBuf::detach(DmaBufAttachment* raw) {
  std::unique_ptr<DmaBufAttachment> a(raw);
  DmaBuf& buf = *a->dmabuf_;
  {
    std::lock_guard g(*buf.resv_);
    buf.attachments_.remove(raw);
  }
  buf.exporter_->detach(*a);
  if (trace::on()) trace::Event("dmabuf", "detach").str("buf", buf.name_);
}

Status DmaBuf::pin(DmaBufAttachment& a) {
  return exporter_->has_pin() ? exporter_->pin(a) : success();
}

void DmaBuf::unpin(DmaBufAttachment& a) {
  if (exporter_->has_pin()) exporter_->unpin(a);
}

Result<std::unique_ptr<SgTable>> DmaBuf::map_attachment(DmaBufAttachment& a) {
  if (pins_on_map(a)) UHCA_CHECK(exporter_->pin(a));
  auto mapped = exporter_->map(a);
  if (!mapped.ok()) {
    if (pins_on_map(a)) exporter_->unpin(a);
    return mapped.error();
  }
  if (!a.is_dynamic()) resv_->wait(DmaResvUsage::kKernel);
  if (trace::on()) trace::Event("dmabuf", "map").str("buf", name_).unum("pieces", (*mapped)->entries.size());
  return mapped;
}

void DmaBuf::unmap_attachment(DmaBufAttachment& a, std::unique_ptr<SgTable> sgt) {
  if (trace::on()) trace::Event("dmabuf", "unmap").str("buf", name_);
  exporter_->unmap(a, std::move(sgt));
  if (pins_on_map(a)) exporter_->unpin(a);
}

void DmaBuf::invalidate_mappings() {
  if (trace::on()) trace::Event("dmabuf", "invalidate").str("buf", name_).unum("attachments", attachments_.size());
  for (DmaBufAttachment* a : attachments_)
    if (a->ops_ != nullptr && a->ops_->invalidate_mappings != nullptr) a->ops_->invalidate_mappings(*a);
}

}  // namespace uhca::kernel::mm
