// SPDX-License-Identifier: MIT
// Every ioctl method of a device's tree, each done wrong in every way that its declaration allows to see, and what the kernel answers.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernel/uverbs/ufile.h"
#include "uverbs/harness.h"

namespace uhca::kernel::test {

inline constexpr std::uint32_t kStale = 0x7fff0000;

inline std::vector<const ApiObject*> objects_of(const UapiTree& tree) {
  std::vector<const ApiObject*> v;
  for (std::uint32_t id = 0; id < 0x2000; ++id)
    if (const ApiObject* o = tree.object(static_cast<std::uint16_t>(id))) v.push_back(o);
  return v;
}

// Objects of the file: a PD, and one of another kind.
struct TableHandles {
  std::uint32_t pd, other;
};

// One attribute at a time, wrong in one way: the first wrong thing decides, before what is missing. How many attributes there are.
inline int wrong_attributes(VerbsFile& f, const UapiTree& tree, const TableHandles& h) {
  int seen = 0;
  std::uint64_t data[8] = {};
  for (const ApiObject* o : objects_of(tree)) {
    EXPECT_EQ(Ioctl(o->id, 0xfff).run(f), EPROTONOSUPPORT) << o->name;
    for (const ApiMethod& m : o->methods) {
      bool mandatory = false;
      EXPECT_EQ(Ioctl(o->id, m.id).raw(0xffe, 8, 0).run(f), EPROTONOSUPPORT) << m.name;
      for (const uverbs_attr_def* a : m.attrs) {
        SCOPED_TRACE(std::string(o->name) + "." + m.name + " " + a->name);
        ++seen;
        mandatory = mandatory || a->mandatory();
        auto one = [&](std::size_t len, std::uint64_t value, std::uint16_t reserved = 0) {
          Ioctl c(o->id, m.id);
          c.raw(a->id, static_cast<std::uint16_t>(len), value);
          c.attr(0).attr_data.reserved = reserved;
          return c.run(f);
        };
        switch (a->type) {
          case UVERBS_ATTR_TYPE_PTR_IN:
          case UVERBS_ATTR_TYPE_PTR_OUT:
            if (a->size.min) {
              EXPECT_EQ(one(a->size.min - 1u, uptr(data)), EINVAL);
            }
            if (a->size.max < 0xffff && !a->size.zero_trailing) {
              EXPECT_EQ(one(a->size.max + 1u, uptr(data)), EINVAL);
            }
            EXPECT_EQ(one(a->size.min, uptr(data), 1), EINVAL);
            if (a->alloc_and_copy()) {
              EXPECT_EQ(one(std::clamp<std::size_t>(64, a->size.min, a->size.max), kBadPtr), EFAULT);
            }
            if (a->type == UVERBS_ATTR_TYPE_PTR_IN && a->size.zero_trailing) {
              std::vector<std::uint8_t> more(a->size.max + 8u, 0xff);
              EXPECT_EQ(one(more.size(), uptr(more.data())), EOPNOTSUPP);
              EXPECT_EQ(one(more.size(), kBadPtr), EOPNOTSUPP) << "unreadable is not known to be zero";
            }
            break;
          case UVERBS_ATTR_TYPE_ENUM_IN: {
            Ioctl c(o->id, m.id);
            c.raw(a->id, a->enum_sizes[0].min, 0);
            c.attr(0).attr_data.enum_data.elem_id = a->num_enum;
            EXPECT_EQ(c.run(f), EOPNOTSUPP);
            c.attr(0).attr_data.enum_data.elem_id = 0;
            c.attr(0).attr_data.enum_data.reserved = 1;
            EXPECT_EQ(c.run(f), EINVAL);
            break;
          }
          case UVERBS_ATTR_TYPE_RAW_FD:
            EXPECT_EQ(one(4, 0), EINVAL);
            EXPECT_EQ(one(0, 0, 1), EINVAL);
            EXPECT_EQ(one(0, std::uint64_t{1} << 40), EINVAL);
            break;
          case UVERBS_ATTR_TYPE_IDR:
            EXPECT_EQ(one(4, 0), EINVAL);
            EXPECT_EQ(one(0, 0, 1), EINVAL);
            if (a->access == UVERBS_ACCESS_NEW) break;
            EXPECT_EQ(one(0, kStale), ENOENT);
            EXPECT_EQ(one(0, ~0ull), EINVAL);
            if (a->obj_type != UVERBS_IDR_ANY_OBJECT) {
              EXPECT_EQ(one(0, a->obj_type == UVERBS_OBJECT_PD ? h.other : h.pd), EINVAL);
            }
            break;
          case UVERBS_ATTR_TYPE_FD:
            EXPECT_EQ(one(4, 0), EINVAL);
            if (a->access == UVERBS_ACCESS_NEW) break;
            EXPECT_EQ(one(0, ~0ull), EBADF);
            EXPECT_EQ(one(0, 0), EBADF) << "a descriptor of something else";
            EXPECT_EQ(one(0, std::uint64_t{1} << 40), EINVAL);
            break;
          case UVERBS_ATTR_TYPE_IDRS_ARRAY: {
            EXPECT_EQ(one(3, 0), EINVAL);
            EXPECT_EQ(one(4, 0, 1), EINVAL);
            EXPECT_EQ(one((a->size.max + 1u) * 4, uptr(data)), EINVAL);
            if (a->size.min <= 1) {
              EXPECT_EQ(one(4, kStale), ENOENT);
            }
            break;
          }
          default: ADD_FAILURE() << "attribute type";
        }
      }
      if (mandatory) {
        EXPECT_EQ(Ioctl(o->id, m.id).run(f), EINVAL) << m.name << ": nothing given";
      }
    }
  }
  return seen;
}

}  // namespace uhca::kernel::test
