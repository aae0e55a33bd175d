// SPDX-License-Identifier: MIT
// The simulated GPU as programs and the command see it: what `uhca run --gpu` says, and the ioctls of /dev/uhca_gpu0, on which the CUDA
// stand-in (user/cuda) is built. A real CUDA driver talks to its kernel module in a private language; this is a small one of our own.
// The AMD side has no header here: /dev/kfd and the render node speak Linux's (<linux/kfd_ioctl.h>, <libdrm/amdgpu_drm.h>).
#pragma once

#include <linux/ioctl.h>

#include <cstdint>
#include <string_view>

namespace uhca::gpu {

enum class Kind : std::uint8_t { kAmd, kNvidia };

struct Config {
  Kind kind = Kind::kAmd;
  std::uint64_t vram = std::uint64_t{1} << 30;  // bytes
  bool small_bar = false;                       // the CPU and peers see the first quarter only, at most 256 MiB
  bool p2p = true;                              // whether the bus routes between GPU and NIC
  bool runtime_pm = false;                      // it sleeps while nobody computes; nobody reaches its memory then

  std::uint64_t visible() const {
    constexpr std::uint64_t kSmall = std::uint64_t{256} << 20;
    return !small_bar ? vram : vram / 4 < kSmall ? vram / 4 : kSmall;
  }
};

inline constexpr std::uint64_t kMinVram = std::uint64_t{8} << 20, kMaxVram = std::uint64_t{256} << 30;

// "amd|nvidia[,vram=SIZE[K|M|G]][,bar=large|small][,p2p=on|off][,runtime-pm=on|off]". Nullptr: done; else which word is wrong.
inline const char* parse_config(std::string_view text, Config* out) {
  auto next = [&text] {
    std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(word.size() == text.size() ? word.size() : word.size() + 1);
    return word;
  };
  const std::string_view kind = next();
  if (kind == "amd") {
    out->kind = Kind::kAmd;
  } else if (kind == "nvidia") {
    out->kind = Kind::kNvidia;
  } else {
    return "the first word is amd or nvidia";
  }
  while (!text.empty()) {
    const std::string_view word = next(), key = word.substr(0, word.find('='));
    const std::string_view value = key.size() == word.size() ? std::string_view{} : word.substr(key.size() + 1);
    auto choose = [&value](std::string_view yes, std::string_view no, bool* to) {
      if (value != yes && value != no) return false;
      *to = value == yes;
      return true;
    };
    if (key == "vram") {
      std::uint64_t n = 0;
      std::size_t i = 0;
      for (; i < value.size() && value[i] >= '0' && value[i] <= '9' && n < kMaxVram; ++i)
        n = n * 10 + static_cast<unsigned>(value[i] - '0');
      const std::string_view unit = value.substr(i);
      if (i == 0 || (unit != "" && unit != "K" && unit != "M" && unit != "G")) return "vram=SIZE, with K, M or G";
      const unsigned shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : 0;
      n = n > kMaxVram >> shift ? kMaxVram + 1 : n << shift;
      if (n < kMinVram || n > kMaxVram || n % (1 << 20) != 0) return "vram is 8M to 256G, in whole MiB";
      out->vram = n;
    } else if (key == "bar") {
      if (!choose("small", "large", &out->small_bar)) return "bar=large or bar=small";
    } else if (key == "p2p") {
      if (!choose("on", "off", &out->p2p)) return "p2p=on or p2p=off";
    } else if (key == "runtime-pm") {
      if (!choose("on", "off", &out->runtime_pm)) return "runtime-pm=on or runtime-pm=off";
    } else {
      return "after the kind: vram=, bar=, p2p=, runtime-pm=";
    }
  }
  return nullptr;
}

// ---------------------------------------------------------------- /dev/uhca_gpu0 (nvidia)

inline constexpr char kIoctlType = 'U';

struct Info {
  std::uint64_t vram, vram_free, bar1;  // bytes
  std::uint8_t p2p, pad[7];
};
// EINVAL: size 0; ENOMEM: the memory of the GPU is all taken. `va`: where the GPU's address space shows it, a multiple of 64 KiB.
struct Alloc {
  std::uint64_t va, size;  // size: bytes, whole 64 KiB
};
// EINVAL: no allocation begins there.
struct Free {
  std::uint64_t va;
};
// Bytes from src to dst; each is an address of the GPU's space, or of the program. EFAULT.
struct Copy {
  std::uint64_t dst, src, size;
};
// `count` values of `width` bytes (1, 2, 4) from dst on. EINVAL, EFAULT.
struct Fill {
  std::uint64_t dst, count;
  std::uint32_t value, width;
};
// A dma-buf of [va, va + size), whole pages of one allocation. EINVAL. `pcie`: to be reached over the bus, whatever else there is:
// EOPNOTSUPP.
struct Export {
  std::uint64_t va, size;
  std::int32_t fd;  // the answer
  std::uint32_t pcie;
};

inline constexpr unsigned long kIoctlInfo = _IOR(kIoctlType, 1, Info), kIoctlAlloc = _IOW(kIoctlType, 2, Alloc),
                               kIoctlFree = _IOW(kIoctlType, 3, Free), kIoctlCopy = _IOW(kIoctlType, 4, Copy),
                               kIoctlFill = _IOW(kIoctlType, 5, Fill), kIoctlExport = _IOWR(kIoctlType, 6, Export);

}  // namespace uhca::gpu
