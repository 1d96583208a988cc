# The installed package: find_package(unisono) gives unisono::comm, unisono::torch, ...
include(CMakePackageConfigHelpers)

set(UNISONO_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/unisono)
get_property(UNISONO_COMPONENTS GLOBAL PROPERTY UNISONO_INSTALLED_COMPONENTS)
list(REMOVE_DUPLICATES UNISONO_COMPONENTS)

# A wheel lies beside its torch.
set(UNISONO_TORCH_BESIDE "")
if(SKBUILD)
  set(UNISONO_TORCH_BESIDE "../../../../torch")
endif()

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/unisono-config.cmake.in
  ${PROJECT_BINARY_DIR}/unisono-config.cmake
  INSTALL_DESTINATION ${UNISONO_PACKAGE_DIR}
)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/unisono-config-version.cmake
  COMPATIBILITY SameMinorVersion
)
install(
  FILES
    ${PROJECT_BINARY_DIR}/unisono-config.cmake
    ${PROJECT_BINARY_DIR}/unisono-config-version.cmake
  DESTINATION ${UNISONO_PACKAGE_DIR}
)
foreach(component IN LISTS UNISONO_COMPONENTS)
  install(
    EXPORT unisono-${component}-targets
    NAMESPACE unisono::
    DESTINATION ${UNISONO_PACKAGE_DIR}
  )
endforeach()
if("datasets" IN_LIST UNISONO_COMPONENTS)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindSndFile.cmake DESTINATION ${UNISONO_PACKAGE_DIR})
endif()
if("torch" IN_LIST UNISONO_COMPONENTS)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindTorchLite.cmake DESTINATION ${UNISONO_PACKAGE_DIR})
endif()
