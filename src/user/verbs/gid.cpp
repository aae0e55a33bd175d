// SPDX-License-Identifier: MIT
// GID table queries: the ioctl methods, or sysfs on kernels that lack them.
#include <dirent.h>
#include <net/if.h>

#include "user/verbs/internal.h"

using namespace uhca::verbs;

namespace {

bool is_zero(const ibv_gid& gid) {
  static constexpr std::uint8_t kZero[16] = {};
  return std::memcmp(gid.raw, kZero, 16) == 0;
}

verbs_sysfs_dev* sysfs_of(ibv_context* context) {
  return verbs_get_device(context->device)->sysfs;
}

bool read_gid(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid* gid) {
  char file[64], value[48];
  std::snprintf(file, sizeof file, "ports/%u/gids/%u", port, index);
  if (ibv_read_ibdev_sysfs_file(value, sizeof value, sysfs_of(context), file) < 39) return false;
  for (unsigned i = 0; i < 8; ++i) {
    unsigned v;
    if (std::sscanf(value + i * 5, "%4x", &v) != 1) return false;
    gid->raw[i * 2] = static_cast<std::uint8_t>(v >> 8);
    gid->raw[i * 2 + 1] = static_cast<std::uint8_t>(v);
  }
  return true;
}

// "RoCE v2", or anything older. An unpopulated entry reads EINVAL, and counts as the older type; so does a kernel without gid_attrs.
bool read_gid_type(ibv_context* context, std::uint32_t port, std::uint32_t index, bool* roce_v2) {
  char file[64], value[16];
  *roce_v2 = false;
  std::snprintf(file, sizeof file, "ports/%u/gid_attrs/types/%u", port, index);
  errno = 0;
  if (ibv_read_ibdev_sysfs_file(value, sizeof value, sysfs_of(context), file) > 0) {
    *roce_v2 = std::strcmp(value, "RoCE v2") == 0;
    return *roce_v2 || std::strcmp(value, "IB/RoCE v1") == 0;
  }
  if (errno == EINVAL) return true;
  char dir[IBV_SYSFS_PATH_MAX + 64];
  std::snprintf(dir, sizeof dir, "%s/ports/%u/gid_attrs", sysfs_of(context)->ibdev_path, port);
  if (DIR* d = opendir(dir)) {
    closedir(d);
    return false;
  }
  return errno == ENOENT;
}

// link_layer < 0: ask for it when it matters.
int read_entry(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry, unsigned mask, int link_layer) {
  entry->gid_index = index;
  entry->port_num = port;
  if ((mask & kGidAttrGid) && !read_gid(context, port, index, &entry->gid)) return EINVAL;
  if (mask & kGidAttrType) {
    bool roce_v2;
    if (!read_gid_type(context, port, index, &roce_v2)) return EINVAL;
    if (roce_v2) {
      entry->gid_type = IBV_GID_TYPE_ROCE_V2;
    } else {
      if (link_layer < 0) {
        ibv_port_attr attr{};
        if (int ret = query_port_clipped(context, static_cast<std::uint8_t>(port), &attr, sizeof attr)) return ret;
        link_layer = attr.link_layer;
      }
      entry->gid_type = link_layer == IBV_LINK_LAYER_ETHERNET ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_IB;
    }
  }
  if (mask & kGidAttrNdev) {
    char file[64], name[IF_NAMESIZE + 1];
    std::snprintf(file, sizeof file, "ports/%u/gid_attrs/ndevs/%u", port, index);
    entry->ndev_ifindex = 0;
    if (ibv_read_ibdev_sysfs_file(name, sizeof name, sysfs_of(context), file) > 0) {
      entry->ndev_ifindex = if_nametoindex(name);
      if (!entry->ndev_ifindex) return errno;
    }
  }
  return 0;
}

int read_table(ibv_context* context, ibv_gid_entry* entries, std::size_t max_entries, std::size_t entry_size, std::uint64_t* count) {
  ibv_device_attr dev{};
  *count = 0;
  if (int ret = ibv_query_device(context, &dev)) return ret;
  for (unsigned port = 1; port <= dev.phys_port_cnt; ++port) {
    ibv_port_attr attr{};
    if (int ret = query_port_clipped(context, static_cast<std::uint8_t>(port), &attr, sizeof attr)) return ret;
    for (int i = 0; i < attr.gid_tbl_len; ++i) {
      ibv_gid_entry entry{};
      if (int ret =
              read_entry(context, port, static_cast<std::uint32_t>(i), &entry, kGidAttrGid | kGidAttrType | kGidAttrNdev, attr.link_layer))
        return ret;
      if (is_zero(entry.gid)) continue;
      if (*count == max_entries) return EINVAL;  // only now: empty entries behind the last do not matter
      std::memcpy(reinterpret_cast<char*>(entries) + *count * entry_size, &entry, entry_size < sizeof entry ? entry_size : sizeof entry);
      ++*count;
    }
  }
  return 0;
}

}  // namespace

namespace uhca::verbs {

int query_gid_entry(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry, std::uint32_t flags,
                    std::size_t entry_size, unsigned fallback_mask) {
  ibv_command_buffer cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY);
  cmd.const_in(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, port);
  cmd.const_in(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, index);
  cmd.in_u32(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, flags);
  cmd.out(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, entry, entry_size);
  int ret;
  Outcome o = execute_with_fallback(context, Method::kQueryGid, &cmd, nullptr, &ret);
  if (o != Outcome::kTryWrite) return ret;
  if (flags) return fail(EOPNOTSUPP);
  ibv_gid_entry full{};
  ret = read_entry(context, port, index, &full, fallback_mask, -1);
  if (ret) return fail(ret);
  std::memcpy(entry, &full, entry_size < sizeof full ? entry_size : sizeof full);
  return (fallback_mask & kGidAttrGid) && is_zero(full.gid) ? fail(ENODATA) : 0;
}

}  // namespace uhca::verbs

UHCA_EXPORT int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port_num, std::uint32_t gid_index, ibv_gid_entry* entry,
                                  std::uint32_t flags, std::size_t entry_size) {
  return query_gid_entry(context, port_num, gid_index, entry, flags, entry_size, kGidAttrGid | kGidAttrType | kGidAttrNdev);
}

UHCA_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t max_entries, std::uint32_t flags,
                                         std::size_t entry_size) {
  std::uint64_t count = 0;
  ibv_command_buffer cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE);
  cmd.const_in(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, entry_size);
  cmd.in_u32(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, flags);
  if (entry_size && max_entries > SIZE_MAX / entry_size)
    cmd.invalid = true;
  else
    cmd.out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, entries, max_entries * entry_size);
  cmd.out_struct(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &count);
  int ret;
  if (execute_with_fallback(context, Method::kQueryGid, &cmd, nullptr, &ret) == Outcome::kTryWrite)
    ret = flags ? EOPNOTSUPP : read_table(context, entries, max_entries, entry_size, &count);
  return ret ? -ret : static_cast<ssize_t>(count);
}

UHCA_EXPORT int ibv_query_gid(ibv_context* context, std::uint8_t port_num, int index, ibv_gid* gid) {
  ibv_gid_entry entry{};
  int ret = query_gid_entry(context, port_num, static_cast<std::uint32_t>(index), &entry, 0, sizeof entry, kGidAttrGid);
  if (ret == ENODATA) {  // an empty entry has always been a zero GID here
    std::memset(gid, 0, sizeof *gid);
    return 0;
  }
  if (ret) return -1;
  *gid = entry.gid;
  return 0;
}

UHCA_EXPORT int ibv_query_gid_type(ibv_context* context, std::uint8_t port_num, unsigned int index, ibv_gid_type_sysfs* type) {
  ibv_gid_entry entry{};
  int ret = query_gid_entry(context, port_num, index, &entry, 0, sizeof entry, kGidAttrType);
  *type = IBV_GID_TYPE_SYSFS_IB_ROCE_V1;
  if (ret == ENODATA) return 0;
  if (ret) return -1;
  if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) *type = IBV_GID_TYPE_SYSFS_ROCE_V2;
  return 0;
}
