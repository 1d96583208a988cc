# cmake -DSOURCE=... -DWORK=... -DGENERATOR=... -DCOMPILER=... -P core_test.cmake
#
# Configures the project as on a machine without the libraries of datasets/.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

file(REMOVE_RECURSE ${WORK})
set(
  configure
  ${CMAKE_COMMAND}
  -S
  ${SOURCE}
  -B
  ${WORK}
  -G
  ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${COMPILER}
  -DUNISONO_BUILD_TORCH=OFF
  -DUNISONO_BUILD_BENCH=ON
)

run("configuring without datasets" passes ${configure} ${without_libraries} -DUNISONO_BUILD_DATASETS=OFF)
foreach(file IN ITEMS build.ninja cmake_install.cmake src/unisono/cli/cmake_install.cmake)
  if(NOT EXISTS ${WORK}/${file})
    message(FATAL_ERROR "configuring wrote no ${file}")
  endif()
endforeach()
file(STRINGS ${WORK}/build.ninja uses REGEX "lib(jpeg|png|sndfile)|unisono/datasets")
if(uses)
  message(FATAL_ERROR "the build uses libraries of datasets:\n${uses}")
endif()

foreach(package IN ITEMS JPEG PNG SndFile)
  run(
    "configuring datasets without ${package}"
    fails
    ${configure}
    -UCMAKE_DISABLE_FIND_PACKAGE_*
    -DUNISONO_BUILD_DATASETS=ON
    -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON
  )
  if(NOT output MATCHES "of ${package}," OR NOT output MATCHES "-DUNISONO_BUILD_DATASETS=OFF")
    message(FATAL_ERROR "the message does not name ${package} and the option:\n${output}")
  endif()
endforeach()
file(REMOVE_RECURSE ${WORK})
