// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <mutex>
#include <new>

#include "base/inside.h"
#include "base/log.h"
#include "base/trace.h"
#include "kernel/gpu/cpu_views.h"
#include "kernel/gpu/export.h"
#include "kernel/gpu/file.h"
#include "kernel/gpu/gpu.h"
#include "kernel/gpu/kfd.h"
#include "kernel/gpu/nv_file.h"

namespace uhca::kernel::gpu {

std::shared_ptr<File> (*file_of_fd)(int) = nullptr;

namespace {

constinit std::mutex lock;
constinit Gpu* the_gpu = nullptr;
constinit bool looked = false;
constinit uhca::gpu::Config wanted{};
constinit bool any = false;

}  // namespace

const uhca::gpu::Config* configured() {
  inside::Guard guard;
  std::lock_guard g(lock);
  if (!looked) {
    looked = true;
    if (const char* text = std::getenv("UHCA_GPU")) {
      const char* wrong = uhca::gpu::parse_config(text, &wanted);
      any = wrong == nullptr;
      if (!any) log::error("UHCA_GPU={}: {}; there is no GPU", text, wrong);
    }
  }
  return any ? &wanted : nullptr;
}

Gpu* device() {
  const uhca::gpu::Config* c = configured();
  if (c == nullptr) return nullptr;
  inside::Guard guard;
  std::lock_guard g(lock);
  if (the_gpu == nullptr) {
    auto made = Gpu::make(*c);
    if (!made.ok()) return nullptr;
    the_gpu = (*made).release();  // lives as long as the process
    if (trace::on()) {
      trace::Event e("gpu", "probe");
      e.str("kind", c->kind == uhca::gpu::Kind::kAmd ? "amd" : "nvidia").unum("vram", c->vram).unum("visible", c->visible());
      e.hex("aperture", kApertureBase).flag("p2p", c->p2p);
    }
  }
  return the_gpu;
}

Result<std::shared_ptr<File>> open_file(Device which) {
  const uhca::gpu::Config* c = configured();
  if (c == nullptr || (c->kind == uhca::gpu::Kind::kNvidia) != (which == Device::kNvidia))
    return refuse(ENODEV, "gpu: there is no such card");
  Gpu* gpu = device();
  if (gpu == nullptr) return refuse(ENOMEM, "gpu: no memory for {} bytes of VRAM", c->vram);
  inside::Guard guard;
  std::shared_ptr<File> f;
  switch (which) {
    case Device::kKfd: f = std::make_shared<KfdFile>(*gpu); break;
    case Device::kRender: f = std::make_shared<RenderFile>(*gpu); break;
    case Device::kNvidia: f = std::make_shared<NvFile>(*gpu); break;
  }
  return f;
}

void forget_after_fork() {
  new (&lock) std::mutex;
  the_gpu = nullptr;  // leaked: the parent's
  views_forget_after_fork();
  exports_forget_after_fork();
}

}  // namespace uhca::kernel::gpu
