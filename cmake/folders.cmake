# SPDX-License-Identifier: MIT
# One static library per folder of the architecture; sources are whatever *.cpp lies in the folder.

function(uhca_folder target folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cpp ${CMAKE_SOURCE_DIR}/src/${folder}/*.S)
  if(NOT sources)
    file(WRITE ${CMAKE_BINARY_DIR}/empty_${target}.cpp "")
    set(sources ${CMAKE_BINARY_DIR}/empty_${target}.cpp)
  endif()
  add_library(${target} STATIC ${sources})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions -fno-rtti>)
  target_link_libraries(${target} PUBLIC ${ARGN})
  set_target_properties(${target} PROPERTIES UHCA_FOLDER ${folder})
  uhca_pch(${target} base ${UHCA_PCH_HEADERS})
endfunction()

# shared
uhca_folder(base base)
uhca_folder(prm prm base)
# wire
uhca_folder(roce wire/roce base)
uhca_folder(net wire/net roce base)
target_link_libraries(roce PUBLIC isal)
# device
uhca_folder(pci device/pci base)
uhca_folder(hca device/hca pci net roce prm base)
# kernel
uhca_folder(mm kernel/mm pci base)
uhca_folder(core kernel/core mm base)
uhca_folder(mlx5_core kernel/mlx5_core mm pci prm base)
uhca_folder(mlx5_ib kernel/mlx5_ib mlx5_core core mm pci prm base)
uhca_folder(uverbs kernel/uverbs core mm base)
uhca_folder(cm kernel/cm core mm prm base)
uhca_folder(gpu kernel/gpu mm base)
# Linux's headers say <drm/drm.h>; Debian keeps these apart from the rest.
find_path(DRM_HEADERS amdgpu_drm.h PATH_SUFFIXES libdrm drm REQUIRED)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include)
file(CREATE_LINK ${DRM_HEADERS} ${CMAKE_BINARY_DIR}/include/drm SYMBOLIC)
target_include_directories(gpu SYSTEM PUBLIC ${CMAKE_BINARY_DIR}/include)

# The preloaded library: kernel, device and wire. No version script: its symbols must answer versioned references too.
file(GLOB sys_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernel/sys/*.cpp)
if(sys_sources)
  add_library(uhca SHARED ${sys_sources})
  set_target_properties(uhca PROPERTIES UHCA_FOLDER kernel/sys)
  target_compile_options(uhca PRIVATE -fno-exceptions -fno-rtti)
  target_link_libraries(uhca PRIVATE uverbs cm gpu mlx5_ib mlx5_core core mm hca pci net roce prm base Threads::Threads ${CMAKE_DL_LIBS})
  uhca_pch(uhca base)
  target_link_options(uhca PRIVATE -static-libstdc++ -static-libgcc -Wl,-Bsymbolic -Wl,--exclude-libs,ALL -Wl,-z,now)
endif()

# The user floor: ordinary libraries.
function(uhca_user_library target folder soname_version map)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/user/${folder}/*.cpp)
  if(sources AND EXISTS ${CMAKE_SOURCE_DIR}/${map})
    add_library(${target} SHARED ${sources})
    set_target_properties(${target} PROPERTIES VERSION ${soname_version} SOVERSION 1 LINK_DEPENDS ${CMAKE_SOURCE_DIR}/${map}
                          UHCA_FOLDER user/${folder})
    target_compile_options(${target} PRIVATE -fno-exceptions -fno-rtti)
    target_link_libraries(${target} PRIVATE ${ARGN})
    uhca_pch(${target} base)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--version-script=${CMAKE_SOURCE_DIR}/${map}
                        -Wl,--exclude-libs,ALL -Wl,-Bsymbolic-functions -Wl,-z,now)
  endif()
endfunction()
uhca_user_library(ibverbs verbs 1.18.65.0 src/user/verbs/libibverbs.map base Threads::Threads ${CMAKE_DL_LIBS})
if(TARGET ibverbs)
  uhca_user_library(mlx5 mlx5 1.27.65.0 src/user/mlx5/libmlx5.map ibverbs prm base Threads::Threads ${CMAKE_DL_LIBS})
endif()
# Beside the others, not among them: a program sees it only with --gpu nvidia.
uhca_user_library(cuda cuda 1.0.0 src/user/cuda/libcuda.map)
set_target_properties(cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/uhca/nvidia)
uhca_user_library(efa stubs/efa 1.7.65.0 src/user/stubs/efa/libefa.map)
uhca_user_library(hns stubs/hns 1.0.65.0 src/user/stubs/hns/libhns.map)

# The sanitizer for programs, preloaded by `uhca run --check`.
file(GLOB check_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/check/*.cpp)
add_library(uhca_check SHARED ${check_sources})
set_target_properties(uhca_check PROPERTIES UHCA_FOLDER check)
target_compile_options(uhca_check PRIVATE -fno-exceptions -fno-rtti)
target_link_libraries(uhca_check PRIVATE base Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(uhca_check PRIVATE -static-libstdc++ -static-libgcc -Wl,-Bsymbolic -Wl,--exclude-libs,ALL -Wl,-z,now)

# The command.
file(GLOB tool_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/tool/*.cpp)
if(tool_sources)
  add_executable(uhca-tool ${tool_sources})
  set_target_properties(uhca-tool PROPERTIES OUTPUT_NAME uhca UHCA_FOLDER tool)
  target_compile_definitions(uhca-tool PRIVATE UHCA_VERSION="${PROJECT_VERSION}")
  target_link_libraries(uhca-tool PRIVATE hca pci net roce prm base Threads::Threads)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/tool/trace_page.cpp PROPERTIES
    OBJECT_DEPENDS ${CMAKE_SOURCE_DIR}/src/tool/trace_page.html COMPILE_OPTIONS "-Wa,-I${CMAKE_SOURCE_DIR}/src")
endif()

# Each folder's target alone on a line, then what it links, "from to", folders by name: tests/arch holds it against the architecture.
get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
set(arrows "")
foreach(target ${targets})
  get_target_property(from ${target} UHCA_FOLDER)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  string(APPEND arrows "${from}\n")
  if(NOT libraries)
    set(libraries "")
  endif()
  foreach(library ${libraries})
    set(to ${library})
    if(TARGET ${library})
      get_target_property(folder ${library} UHCA_FOLDER)
      if(folder)
        set(to ${folder})
      endif()
    endif()
    string(APPEND arrows "${from} ${to}\n")
  endforeach()
endforeach()
file(WRITE ${CMAKE_BINARY_DIR}/link_arrows.txt "${arrows}")
