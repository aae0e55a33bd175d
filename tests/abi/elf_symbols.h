// SPDX-License-Identifier: MIT
// The versioned symbols that a shared library defines, read from its file (not through the loader), as "name@version".
#pragma once

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace uhca::test {

inline std::set<std::string> exported_symbols(const std::string& path) {
  std::set<std::string> out;
  std::ifstream f(path, std::ios::binary);
  std::vector<char> b((std::istreambuf_iterator<char>(f)), std::istreambuf_iterator<char>());
  if (b.size() < sizeof(Elf64_Ehdr) || std::memcmp(b.data(), ELFMAG, SELFMAG) != 0) return out;
  auto* eh = reinterpret_cast<const Elf64_Ehdr*>(b.data());
  auto* sh = reinterpret_cast<const Elf64_Shdr*>(b.data() + eh->e_shoff);
  const Elf64_Shdr *dynsym = nullptr, *versym = nullptr, *verdef = nullptr;
  for (unsigned i = 0; i < eh->e_shnum; ++i) {
    if (sh[i].sh_type == SHT_DYNSYM) dynsym = &sh[i];
    if (sh[i].sh_type == SHT_GNU_versym) versym = &sh[i];
    if (sh[i].sh_type == SHT_GNU_verdef) verdef = &sh[i];
  }
  if (!dynsym || !versym || !verdef) return out;
  std::map<unsigned, std::string> nodes;
  const char* vstr = b.data() + sh[verdef->sh_link].sh_offset;
  const char* p = b.data() + verdef->sh_offset;
  for (unsigned i = 0; i < verdef->sh_info; ++i) {
    auto* d = reinterpret_cast<const Elf64_Verdef*>(p);
    auto* a = reinterpret_cast<const Elf64_Verdaux*>(p + d->vd_aux);
    nodes[d->vd_ndx & 0x7fff] = vstr + a->vda_name;
    p += d->vd_next;
  }
  const char* str = b.data() + sh[dynsym->sh_link].sh_offset;
  auto* sym = reinterpret_cast<const Elf64_Sym*>(b.data() + dynsym->sh_offset);
  auto* ver = reinterpret_cast<const Elf64_Versym*>(b.data() + versym->sh_offset);
  for (std::size_t i = 0; i < dynsym->sh_size / sizeof(Elf64_Sym); ++i) {
    const unsigned type = ELF64_ST_TYPE(sym[i].st_info);
    if (sym[i].st_shndx == SHN_UNDEF || sym[i].st_shndx == SHN_ABS || (type != STT_FUNC && type != STT_OBJECT)) continue;
    auto node = nodes.find(ver[i] & 0x7fff);
    out.insert(std::string(str + sym[i].st_name) + "@" + (node == nodes.end() ? "" : node->second));
  }
  return out;
}

}  // namespace uhca::test
