# SPDX-License-Identifier: MIT
# Sanitizer builds. A finding ends the program with a failure.
set(UHCA_SANITIZE "" CACHE STRING "address,undefined or thread")
# For tests/fuzz, which is led by coverage; nothing else is of use in such a build: the preloaded library would count in programs that are not ours.
option(UHCA_FUZZ "instrumented for libFuzzer (clang)" OFF)
if(UHCA_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(UHCA_SANITIZE)
  add_compile_options(-fsanitize=${UHCA_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${UHCA_SANITIZE})
  if(UHCA_SANITIZE MATCHES undefined)
    # Both need the type information that -fno-rtti leaves out.
    add_compile_options(-fno-sanitize=vptr $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
  endif()
  if(UHCA_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options(-Wno-tsan)  # it warns of every fence
  endif()
  if(UHCA_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    # libuhca.so enters programs that are not sanitized: the runtime must be a library that can be preloaded before it, as it is with GCC.
    add_link_options(-shared-libasan)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} --print-file-name=libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so
                    OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    get_filename_component(folder ${runtime} DIRECTORY)
    add_link_options(-Wl,-rpath,${folder})
    get_filename_component(name ${runtime} NAME)
    file(MAKE_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
    file(CREATE_LINK ${runtime} ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/${name} SYMBOLIC)  # `uhca run` preloads it first
  endif()
endif()
