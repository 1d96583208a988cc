# Finds the headers of NVIDIA's NCCL and CUDA and defines Nccl::headers. The libraries themselves are
# loaded by programs when they need them, so a machine without them runs what was built here.
#
# Looks in UNISONO_NCCL_DIR: a folder with nccl.h, one that has it in include/, or the folder nvidia/ of a
# Python's site-packages, where the wheels nvidia-nccl-cu13, nvidia-cuda-runtime, -crt and -cccl put
# them; then beside the torch that is built against, and where the system and CUDA's toolkit have them.
cmake_path(SET _nccl_beside_torch NORMALIZE "${TorchLite_INCLUDE_DIR}/../../nvidia")
set(_nccl_hints "")
foreach(_folder IN ITEMS "${UNISONO_NCCL_DIR}" "${_nccl_beside_torch}")
  foreach(
    _part
    IN
    ITEMS . include nccl/include cu13/include cuda_runtime/include
  )
    if(_folder AND EXISTS ${_folder}/${_part})
      list(APPEND _nccl_hints ${_folder}/${_part})
    endif()
  endforeach()
endforeach()
find_path(Nccl_INCLUDE_DIR nccl.h HINTS ${_nccl_hints})
# Of CUDA's toolkit, which several wheels make up: cuda_runtime.h includes the others.
file(GLOB _nccl_toolkits LIST_DIRECTORIES true /usr/local/cuda /usr/local/cuda-*)
foreach(_part IN ITEMS CUDA:cuda_runtime.h CRT:crt/host_config.h CCCL:nv/target)
  string(REGEX MATCH "^([A-Z]+):(.*)$" _matched ${_part})
  find_path(
    Nccl_${CMAKE_MATCH_1}_INCLUDE_DIR
    ${CMAKE_MATCH_2}
    HINTS ${_nccl_hints}
    PATHS ${_nccl_toolkits}
    PATH_SUFFIXES include
  )
endforeach()
mark_as_advanced(Nccl_INCLUDE_DIR Nccl_CUDA_INCLUDE_DIR Nccl_CRT_INCLUDE_DIR Nccl_CCCL_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Nccl
  REQUIRED_VARS Nccl_INCLUDE_DIR Nccl_CUDA_INCLUDE_DIR Nccl_CRT_INCLUDE_DIR Nccl_CCCL_INCLUDE_DIR
  REASON_FAILURE_MESSAGE
    "nccl.h or CUDA's headers are missing, so backend nccl is left out: UNISONO_NCCL_DIR may say where they are"
)
if(Nccl_FOUND AND NOT TARGET Nccl::headers)
  add_library(Nccl::headers INTERFACE IMPORTED)
  target_include_directories(
    Nccl::headers
    SYSTEM
    INTERFACE
      ${Nccl_INCLUDE_DIR}
      ${Nccl_CUDA_INCLUDE_DIR}
      ${Nccl_CRT_INCLUDE_DIR}
      ${Nccl_CCCL_INCLUDE_DIR}
  )
endif()
