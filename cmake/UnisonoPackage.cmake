# The installed package: find_package(unisono) gives unisono::comm, unisono::torch, ...
include(CMakePackageConfigHelpers)
set(UNISONO_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/unisono)
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/unisono-config.cmake.in ${PROJECT_BINARY_DIR}/unisono-config.cmake
  INSTALL_DESTINATION ${UNISONO_PACKAGE_DIR})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/unisono-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/unisono-config.cmake
              ${PROJECT_BINARY_DIR}/unisono-config-version.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindTorchLite.cmake
        DESTINATION ${UNISONO_PACKAGE_DIR})
install(EXPORT unisono-targets NAMESPACE unisono:: DESTINATION ${UNISONO_PACKAGE_DIR})
