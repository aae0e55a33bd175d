// SPDX-License-Identifier: MIT
#include "tool/elf_file.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>

namespace uhca::tool {

bool ElfFile::load(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return false;
  Elf64_Ehdr eh{};
  if (!in.read(reinterpret_cast<char*>(&eh), sizeof eh) || std::memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0) return false;
  x86_64_ = eh.e_ident[EI_CLASS] == ELFCLASS64 && eh.e_machine == EM_X86_64;
  if (!x86_64_) return true;

  std::vector<Elf64_Phdr> ph(eh.e_phnum);
  in.seekg(static_cast<std::streamoff>(eh.e_phoff));
  if (!in.read(reinterpret_cast<char*>(ph.data()), static_cast<std::streamsize>(ph.size() * sizeof(Elf64_Phdr)))) return true;
  const Elf64_Phdr* dynamic = nullptr;
  for (const auto& p : ph) {
    if (p.p_type == PT_INTERP) interpreter_ = true;
    if (p.p_type == PT_DYNAMIC) dynamic = &p;
  }
  if (!dynamic) return true;

  std::vector<Elf64_Dyn> dyn(dynamic->p_filesz / sizeof(Elf64_Dyn));
  in.seekg(static_cast<std::streamoff>(dynamic->p_offset));
  if (!in.read(reinterpret_cast<char*>(dyn.data()), static_cast<std::streamsize>(dyn.size() * sizeof(Elf64_Dyn)))) return true;
  Elf64_Addr strtab = 0;
  std::size_t strsz = 0;
  for (const auto& d : dyn) {
    if (d.d_tag == DT_STRTAB) strtab = d.d_un.d_ptr;
    if (d.d_tag == DT_STRSZ) strsz = d.d_un.d_val;
  }
  for (const auto& p : ph) {
    if (p.p_type != PT_LOAD || strtab < p.p_vaddr || strtab >= p.p_vaddr + p.p_filesz || strsz > (1u << 24)) continue;
    std::string names(strsz, '\0');
    in.seekg(static_cast<std::streamoff>(strtab - p.p_vaddr + p.p_offset));
    if (!in.read(names.data(), static_cast<std::streamsize>(strsz))) return true;
    for (const auto& d : dyn)
      if (d.d_tag == DT_NEEDED && d.d_un.d_val < strsz) needed_.emplace_back(names.c_str() + d.d_un.d_val);
    break;
  }
  return true;
}

std::string ElfFile::needed_with_prefix(const std::string& prefix) const {
  for (const auto& n : needed_)
    if (n.compare(0, prefix.size(), prefix) == 0) return n;
  return {};
}

}  // namespace uhca::tool
