// SPDX-License-Identifier: MIT
#include "kernel/gpu/vm.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "base/inside.h"
#include "base/log.h"
#include "base/trace.h"

namespace uhca::kernel::gpu {
namespace {
constexpr std::uint64_t kChunk = std::uint64_t{1} << 20;  // bytes that a copy takes at a time
}

Status Vm::map(std::uint64_t va, std::shared_ptr<Bo> bo) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  auto next = mappings_.upper_bound(va);
  const bool before = next != mappings_.begin() && std::prev(next)->first + std::prev(next)->second->size() > va;
  if (before || va + bo->size() < va || (next != mappings_.end() && next->first < va + bo->size()))
    return refuse(EINVAL, "gpu: something is at [{:#x}, +{:#x}) of its address space", va, bo->size());
  if (trace::on()) trace::Event("gpu", "vm_map").unum("bo", bo->number()).hex("gpu_va", va).unum("size", bo->size());
  mappings_.emplace(va, std::move(bo));
  return success();
}

Result<std::shared_ptr<Bo>> Vm::unmap(std::uint64_t va) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  auto it = mappings_.find(va);
  if (it == mappings_.end()) return refuse(EINVAL, "gpu: nothing begins at {:#x} of its address space", va);
  auto bo = std::move(it->second);
  mappings_.erase(it);
  if (trace::on()) trace::Event("gpu", "vm_unmap").unum("bo", bo->number()).hex("gpu_va", va);
  return bo;
}

Vm::Place Vm::at(std::uint64_t va) const {
  inside::Guard guard;
  std::lock_guard g(lock_);
  auto next = mappings_.upper_bound(va);
  if (next != mappings_.begin()) {
    auto here = std::prev(next);
    const std::uint64_t off = va - here->first;
    if (off < here->second->size()) return {here->second, off, here->second->size() - off};
  }
  return {nullptr, 0, next == mappings_.end() ? ~va : next->first - va};
}

Status Vm::read(std::uint64_t va, void* to, std::uint64_t n) const {
  auto* out = static_cast<std::byte*>(to);
  if (va + n < va) return refuse(EFAULT, "gpu: {} bytes at {:#x} wrap around", n, va);
  while (n > 0) {
    Place p = at(va);
    const std::uint64_t piece = std::min(n, p.left);
    UHCA_CHECK(p.bo ? p.bo->read(p.offset, out, piece) : copy_from_user(out, va, piece));
    out += piece, va += piece, n -= piece;
  }
  return success();
}

Status Vm::write(std::uint64_t va, const void* from, std::uint64_t n) const {
  auto* in = static_cast<const std::byte*>(from);
  if (va + n < va) return refuse(EFAULT, "gpu: {} bytes at {:#x} wrap around", n, va);
  while (n > 0) {
    Place p = at(va);
    const std::uint64_t piece = std::min(n, p.left);
    UHCA_CHECK(p.bo ? p.bo->write(p.offset, in, piece) : copy_to_user(va, in, piece));
    in += piece, va += piece, n -= piece;
  }
  return success();
}

Status Vm::atomic_add64(std::uint64_t va, std::uint64_t value) const {
  if (va % 8 != 0) return refuse(EINVAL, "gpu: an atomic access at {:#x}", va);
  Place p = at(va);
  return p.bo ? p.bo->atomic_add64(p.offset, value) : Bo::add64(reinterpret_cast<void*>(va), value);
}

Status Vm::copy(std::uint64_t dst, std::uint64_t src, std::uint64_t n) {
  if (dst + n < dst || src + n < src) return refuse(EFAULT, "gpu: a copy of {:#x} bytes from {:#x} to {:#x}", n, src, dst);
  std::vector<std::byte> chunk(std::min(n, kChunk));
  while (n > 0) {
    const std::uint64_t piece = std::min<std::uint64_t>(n, chunk.size());
    UHCA_CHECK(read(src, chunk.data(), piece));
    UHCA_CHECK(write(dst, chunk.data(), piece));
    src += piece, dst += piece, n -= piece;
  }
  return success();
}

Status Vm::fill(std::uint64_t dst, std::uint64_t pattern, unsigned width, std::uint64_t n) {
  if (dst + n < dst) return refuse(EFAULT, "gpu: a fill of {:#x} bytes at {:#x}", n, dst);
  std::vector<std::byte> chunk(std::min(n, kChunk));
  for (std::size_t i = 0; i < chunk.size(); ++i) chunk[i] = static_cast<std::byte>(pattern >> 8 * (i % width));
  for (std::uint64_t at = 0; at < n; at += kChunk) UHCA_CHECK(write(dst + at, chunk.data(), std::min(kChunk, n - at)));
  return success();
}

}  // namespace uhca::kernel::gpu
