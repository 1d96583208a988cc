# `make package`: a tarball, and on Debian a .deb, of the files that `cmake --install` writes.
install(
  FILES ${PROJECT_SOURCE_DIR}/LICENSE
  DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/unisono
  RENAME copyright
  COMPONENT license
)

set(CPACK_GENERATOR TGZ)
find_program(UNISONO_DPKG_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(UNISONO_DPKG_SHLIBDEPS)
if(UNISONO_DPKG_SHLIBDEPS)
  list(APPEND CPACK_GENERATOR DEB)
endif()
set(
  CPACK_PACKAGE_FILE_NAME
  unisono-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}
)
set(CPACK_PACKAGE_VENDOR "Unisono developers")
set(CPACK_PACKAGE_CONTACT "Unisono developers <unisono@localhost>")
set(
  CPACK_PACKAGE_DESCRIPTION_SUMMARY
  "Distributed training on LibTorch: launcher and C++ libraries"
)
set(
  CPACK_PACKAGE_DESCRIPTION
  "Process groups, stores, collective operations, a launcher, and distributed training with LibTorch:
the program unisono, static libraries, headers and a CMake package. Its component torch needs a LibTorch,
which is not a Debian package."
)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(
  CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ
  OWNER_WRITE
  OWNER_EXECUTE
  GROUP_READ
  GROUP_EXECUTE
  WORLD_READ
  WORLD_EXECUTE
)

# The CMake package links these libraries. Another major version of fmt has other symbols.
math(EXPR fmt_next "${fmt_VERSION_MAJOR} + 1")
set(
  CPACK_DEBIAN_PACKAGE_DEPENDS
  "libfmt-dev (>= ${fmt_VERSION_MAJOR}), libfmt-dev (<< ${fmt_next}~), libssl-dev, zlib1g-dev"
)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "cmake (>= 3.25), g++")
if(UNISONO_BUILD_DATASETS)
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libjpeg-dev, libpng-dev, libsndfile1-dev")
endif()
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
# Adds the packages of the shared libraries to the fields above.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/cpack_dependencies.cmake)
include(CPack)
