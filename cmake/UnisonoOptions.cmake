# Compile and link options of our own targets. Carried by an interface target, never by global flags.
include(CheckLinkerFlag)

add_library(unisono_options INTERFACE)
target_compile_features(unisono_options INTERFACE cxx_std_20)
target_compile_options(
  unisono_options
  INTERFACE
    -Wall
    -Wextra
    -Wshadow
    -Wconversion
    -Wnon-virtual-dtor
    -fvisibility=hidden
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
    $<$<BOOL:${UNISONO_WERROR}>:-Werror>
)
# Of no consequence for where the program runs. GCC's generic tuning clears structures with "rep stos",
# whose start costs as much as all else that an operation on a few bytes does.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(unisono_options INTERFACE -mtune=skylake)
endif()
if(UNISONO_SANITIZE)
  target_compile_options(
    unisono_options
    INTERFACE -fsanitize=${UNISONO_SANITIZE} -fno-omit-frame-pointer
  )
  # GCC takes what it has instrumented for uninitialized memory: a false alarm that its manual names.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(unisono_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  target_link_options(unisono_options INTERFACE -fsanitize=${UNISONO_SANITIZE})
  if(UNISONO_SANITIZE MATCHES "undefined")
    target_compile_options(unisono_options INTERFACE -fno-sanitize-recover=undefined)
    # The check of virtual calls asks by a pipe whether memory is readable: in a process that has no
    # descriptors left, as tests make some, it takes every object for none.
    target_compile_options(unisono_options INTERFACE -fno-sanitize=vptr)
  endif()
endif()

# Every test is a program of its own, and GNU ld is slow where LibTorch is linked.
set(
  UNISONO_LINKER
  "auto"
  CACHE STRING
  "As -fuse-ld takes it; auto: mold if it is there, else the compiler's own; empty: the compiler's own"
)
set(_linker "${UNISONO_LINKER}")
if(_linker STREQUAL "auto")
  find_program(UNISONO_MOLD mold)
  mark_as_advanced(UNISONO_MOLD)
  set(_linker "")
  if(UNISONO_MOLD)
    set(_linker mold)
  endif()
endif()
if(_linker)
  check_linker_flag(CXX -fuse-ld=${_linker} UNISONO_LINKER_${_linker}_WORKS)
  if(UNISONO_LINKER_${_linker}_WORKS)
    target_link_options(unisono_options INTERFACE -fuse-ld=${_linker})
    # Else mold 1.10 may let RELRO begin on a page that no segment maps, some bytes before the end of
    # the code's last one: the program does not start ("cannot apply additional memory protection").
    if(_linker STREQUAL "mold")
      target_link_options(unisono_options INTERFACE "LINKER:-z,separate-loadable-segments")
    endif()
  elseif(NOT UNISONO_LINKER STREQUAL "auto")
    message(FATAL_ERROR "the compiler cannot link with UNISONO_LINKER=${_linker}")
  endif()
endif()
