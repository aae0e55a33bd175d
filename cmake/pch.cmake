# SPDX-License-Identifier: MIT
# Precompiled standard headers: they halve clang's time for a file. Only the sanitizer builds use them; the plain builds go without, so that a
# file that forgets an #include is found there.
option(UHCA_PCH "precompile the standard headers" OFF)

set(UHCA_PCH_HEADERS <fmt/core.h> <algorithm> <array> <atomic> <bit> <cerrno> <cstddef> <cstdint> <cstring> <functional> <map> <memory>
    <mutex> <optional> <span> <string> <string_view> <utility> <vector>)

if(UHCA_PCH)
  # What ccache asks for before it caches anything that uses a precompiled header.
  set(UHCA_CCACHE_ENVIRONMENT ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros)
endif()

# `owner` makes the precompiled header from the headers given; other targets, compiled with the same flags, use the owner's.
function(uhca_pch target owner)
  if(NOT UHCA_PCH)
    return()
  endif()
  if(target STREQUAL owner)
    target_precompile_headers(${target} PRIVATE ${ARGN})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>)
  else()
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()
