# SPDX-License-Identifier: MIT
# Installation and the Debian package. The libraries live in a folder of their own, where no dynamic loader looks: the system's libibverbs and
# libmlx5 stay what every other program gets.
set(private lib/uhca)  # beside bin/, where the command looks for them (tool/launch.cpp)

install(TARGETS uhca-tool RUNTIME DESTINATION bin COMPONENT uhca)
install(TARGETS uhca uhca_check ibverbs mlx5 efa hns LIBRARY DESTINATION ${private} COMPONENT uhca NAMELINK_SKIP)
install(TARGETS cuda LIBRARY DESTINATION ${private}/nvidia COMPONENT uhca NAMELINK_SKIP)
install(FILES ${CMAKE_SOURCE_DIR}/docs/man/uhca.1 DESTINATION share/man/man1 COMPONENT uhca)
install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/docs/support.md
        DESTINATION share/doc/uhca COMPONENT uhca)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME uhca)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "ConnectX-class RDMA NIC and its software stack in user space")
set(CPACK_PACKAGE_CONTACT "uhca")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};uhca;uhca;/")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
# Named here: the private libibverbs.so.1 would be taken for the system's by dpkg-shlibdeps.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.36), libisal2, libgcc-s1, libstdc++6")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "ibverbs-utils, perftest, rdmacm-utils")
include(CPack)
