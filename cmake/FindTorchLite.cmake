# Finds a LibTorch (unpacked, or inside the torch package of a Python) and defines TorchLite::torch,
# which links torch_cpu and c10 alone. Torch's own package file demands a CUDA toolkit when the
# build is for CUDA; users of the CPU part can do without.
#
# A wheel is built for the Python that builds it (Python_EXECUTABLE), and takes its torch. Otherwise
# looks in UNISONO_TORCH_DIR (of CMake, or of the environment), then asks the Python that the
# environment variable PYTHON names, looks in the torch package beside an installed wheel, and asks the
# `python3` of the project's .venv, and the one in PATH. The variable TorchLite_PYTHON is the Python that
# the torch package belongs to; it is not set for an unpacked LibTorch.
function(_torch_of_python python result)
  execute_process(
    COMMAND
      ${python} -c
      "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE output
    OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET
    RESULT_VARIABLE status
  )
  if(NOT status EQUAL 0)
    set(output "")
  endif()
  set(${result} "${output}" PARENT_SCOPE)
endfunction()

set(_torch_dir "${UNISONO_TORCH_DIR}")
if(NOT _torch_dir)
  set(_torch_dir "$ENV{UNISONO_TORCH_DIR}")
endif()
if(SKBUILD)
  _torch_of_python(${Python_EXECUTABLE} _torch_dir)
elseif(_torch_dir)
  cmake_path(ABSOLUTE_PATH _torch_dir BASE_DIRECTORY ${CMAKE_BINARY_DIR} NORMALIZE)
  string(REGEX REPLACE "/$" "" _torch_dir "${_torch_dir}")
elseif(DEFINED ENV{PYTHON})
  _torch_of_python($ENV{PYTHON} _torch_dir)
elseif(_unisono_torch_beside AND EXISTS ${_unisono_torch_beside}/include/ATen/ATen.h)
  set(_torch_dir ${_unisono_torch_beside})
endif()

# What an earlier run found stays, unless it is gone or another folder is asked for now.
set(_torch_known "")
if(EXISTS "${TorchLite_INCLUDE_DIR}")
  cmake_path(GET TorchLite_INCLUDE_DIR PARENT_PATH _torch_known)
endif()
if(NOT _torch_known OR (_torch_dir AND NOT _torch_dir STREQUAL _torch_known))
  unset(TorchLite_INCLUDE_DIR CACHE)
  unset(TorchLite_TORCH_CPU CACHE)
  unset(TorchLite_C10 CACHE)
  foreach(_python IN ITEMS ${PROJECT_SOURCE_DIR}/.venv/bin/python3 python3)
    if(NOT _torch_dir)
      _torch_of_python(${_python} _torch_dir)
    endif()
  endforeach()
endif()

find_path(TorchLite_INCLUDE_DIR ATen/ATen.h HINTS ${_torch_dir}/include NO_DEFAULT_PATH)
find_library(TorchLite_TORCH_CPU torch_cpu HINTS ${_torch_dir}/lib NO_DEFAULT_PATH)
find_library(TorchLite_C10 c10 HINTS ${_torch_dir}/lib NO_DEFAULT_PATH)
mark_as_advanced(TorchLite_INCLUDE_DIR TorchLite_TORCH_CPU TorchLite_C10)

if(TorchLite_INCLUDE_DIR AND EXISTS ${TorchLite_INCLUDE_DIR}/torch/headeronly/version.h)
  file(READ ${TorchLite_INCLUDE_DIR}/torch/headeronly/version.h _torch_version)
  unset(TorchLite_VERSION)
  foreach(_part IN ITEMS MAJOR MINOR PATCH)
    if(_torch_version MATCHES "define TORCH_VERSION_${_part} ([0-9]+)")
      list(APPEND TorchLite_VERSION ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(JOIN TorchLite_VERSION "." TorchLite_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  TorchLite
  REQUIRED_VARS TorchLite_TORCH_CPU TorchLite_C10 TorchLite_INCLUDE_DIR
  VERSION_VAR TorchLite_VERSION
  REASON_FAILURE_MESSAGE
    "no LibTorch found: run `make deps`, or set UNISONO_TORCH_DIR to a LibTorch folder or to the torch folder of a Python's site-packages, or build the core alone with -DUNISONO_BUILD_TORCH=OFF"
)
if(TorchLite_FOUND AND SKBUILD)
  set(TorchLite_PYTHON ${Python_EXECUTABLE})
elseif(TorchLite_FOUND)
  # <prefix>/lib/python3.x/site-packages/torch/include -> <prefix>/bin/python3
  cmake_path(SET _torch_python NORMALIZE ${TorchLite_INCLUDE_DIR}/../../../../../bin/python3)
  if(TorchLite_INCLUDE_DIR MATCHES "/site-packages/torch/include$" AND EXISTS ${_torch_python})
    set(TorchLite_PYTHON ${_torch_python})
  endif()
endif()
if(TorchLite_FOUND AND NOT TARGET TorchLite::torch)
  add_library(TorchLite::torch INTERFACE IMPORTED)
  target_include_directories(
    TorchLite::torch
    SYSTEM
    INTERFACE ${TorchLite_INCLUDE_DIR} ${TorchLite_INCLUDE_DIR}/torch/csrc/api/include
  )
  target_link_libraries(TorchLite::torch INTERFACE ${TorchLite_TORCH_CPU} ${TorchLite_C10})
  cmake_path(GET TorchLite_TORCH_CPU PARENT_PATH _torch_lib_dir)
  target_link_options(TorchLite::torch INTERFACE "LINKER:-rpath,${_torch_lib_dir}")
endif()
