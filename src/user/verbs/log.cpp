// SPDX-License-Identifier: MIT
// The verbs log as rdma-core has it: VERBS_LOG_LEVEL (0 none .. 4 debug) and VERBS_LOG_FILE. Without a file nothing is written: a library
// must not print into a program's output.
#include <cstring>
#include <mutex>

#include "user/verbs/internal.h"

namespace {
constinit std::uint32_t log_level = 0;
constinit FILE* log_file = nullptr;
}  // namespace

namespace uhca::verbs {

void init_log() {
  if (const char* level = std::getenv("VERBS_LOG_LEVEL")) log_level = static_cast<std::uint32_t>(std::strtol(level, nullptr, 0));
  const char* path = std::getenv("VERBS_LOG_FILE");
  if (log_level && path) log_file = std::fopen(path, "ae");
}

bool show_warnings() {
  return std::getenv("IBV_SHOW_WARNINGS") || log_level >= 2;
}

}  // namespace uhca::verbs

UHCA_EXPORT void verbs_log(verbs_context_v65* ctx, std::uint32_t level, const char* format, ...) {
  if (!log_file || level > log_level) return;
  int saved = errno;
  char line[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  std::fprintf(log_file, "%s: %s\n", ctx && ctx->v.context.device ? ctx->v.context.device->name : "libibverbs", line);
  std::fflush(log_file);
  errno = saved;
}
