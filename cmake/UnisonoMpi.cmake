# unisono_find_mpi(NAME)
#
# Looks for the MPI whose compiler wrapper is mpicxx.NAME: Debian has one name for each MPI. Sets
# UNISONO_MPI_HEADER_NAME to the folder of its mpi.h, or to something false; UNISONO_MPI_FOLDERS_NAME
# to the folders of its headers, and UNISONO_MPI_LIBRARIES_NAME to what to link: not the C++ bindings,
# which MPI has dropped.
function(unisono_find_mpi name)
  find_program(UNISONO_MPICXX_${name} mpicxx.${name})
  mark_as_advanced(UNISONO_MPICXX_${name})
  if(NOT UNISONO_MPICXX_${name})
    set(UNISONO_MPI_HEADER_${name} "" PARENT_SCOPE)
    return()
  endif()
  execute_process(
    COMMAND ${UNISONO_MPICXX_${name}} -show
    OUTPUT_VARIABLE shown
    OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY
  )
  separate_arguments(flags UNIX_COMMAND "${shown}")
  set(folders ${flags})
  list(FILTER folders INCLUDE REGEX "^-I")
  list(TRANSFORM folders REPLACE "^-I" "")
  find_path(UNISONO_MPI_HEADER_${name} mpi.h PATHS ${folders} NO_DEFAULT_PATH)
  mark_as_advanced(UNISONO_MPI_HEADER_${name})
  list(FILTER flags INCLUDE REGEX "^-[lL]")
  list(FILTER flags EXCLUDE REGEX "^-l(mpi_cxx|mpichcxx)$")
  set(UNISONO_MPI_FOLDERS_${name} ${folders} PARENT_SCOPE)
  set(UNISONO_MPI_LIBRARIES_${name} ${flags} PARENT_SCOPE)
endfunction()
