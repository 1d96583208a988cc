# Finds a LibTorch (unpacked, or inside the torch package of a Python) and defines TorchLite::torch,
# which links torch_cpu and c10 alone. Torch's own package file demands a CUDA toolkit when the
# build is for CUDA; users of the CPU part can do without.
#
# Looks in UNISONO_TORCH_DIR, then asks the `python3` of the project's .venv, then the one in PATH.
set(_torch_dir "${UNISONO_TORCH_DIR}")
if(NOT _torch_dir)
  foreach(_python IN ITEMS ${PROJECT_SOURCE_DIR}/.venv/bin/python3 python3)
    execute_process(
      COMMAND ${_python} -c
              "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE _torch_dir
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
      RESULT_VARIABLE _torch_status)
    if(_torch_status EQUAL 0)
      break()
    endif()
    set(_torch_dir "")
  endforeach()
endif()

find_path(TorchLite_INCLUDE_DIR ATen/ATen.h HINTS ${_torch_dir}/include NO_DEFAULT_PATH)
find_library(TorchLite_TORCH_CPU torch_cpu HINTS ${_torch_dir}/lib NO_DEFAULT_PATH)
find_library(TorchLite_C10 c10 HINTS ${_torch_dir}/lib NO_DEFAULT_PATH)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  TorchLite
  REQUIRED_VARS TorchLite_TORCH_CPU TorchLite_C10 TorchLite_INCLUDE_DIR
  REASON_FAILURE_MESSAGE
    "no LibTorch found: run `make deps`, or set UNISONO_TORCH_DIR to a LibTorch folder or to the torch folder of a Python's site-packages, or build the core alone with -DUNISONO_BUILD_TORCH=OFF"
)
if(TorchLite_FOUND AND NOT TARGET TorchLite::torch)
  add_library(TorchLite::torch INTERFACE IMPORTED)
  target_include_directories(
    TorchLite::torch SYSTEM
    INTERFACE ${TorchLite_INCLUDE_DIR} ${TorchLite_INCLUDE_DIR}/torch/csrc/api/include)
  target_link_libraries(TorchLite::torch INTERFACE ${TorchLite_TORCH_CPU} ${TorchLite_C10})
  cmake_path(GET TorchLite_TORCH_CPU PARENT_PATH _torch_lib_dir)
  target_link_options(TorchLite::torch INTERFACE "LINKER:-rpath,${_torch_lib_dir}")
endif()
