# What the program itself prints, where shells and man look for it.
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  message(STATUS "No completion and no manual page: they take CMAKE_CROSSCOMPILING_EMULATOR")
  add_custom_target(unisono_shell_files)
  return()
endif()

# A wheel has a folder of its own for what goes into its environment's share/.
if(SKBUILD)
  set(shell_prefix ${SKBUILD_DATA_DIR}/)
endif()

# unisono_shell_file(FOLDER NAME ARGUMENT...): what `unisono ARGUMENT...` prints, as FOLDER/NAME.
function(unisono_shell_file folder name)
  set(path ${PROJECT_BINARY_DIR}/shell/${name})
  add_custom_command(
    OUTPUT ${path}
    COMMAND unisono_cli ${ARGN} > ${path}
    DEPENDS unisono_cli
    VERBATIM
  )
  set_property(TARGET unisono_cli APPEND PROPERTY UNISONO_SHELL_FILES ${path})
  install(FILES ${path} DESTINATION ${shell_prefix}${folder} COMPONENT shell)
endfunction()

file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/shell)
unisono_shell_file(${CMAKE_INSTALL_DATADIR}/bash-completion/completions unisono completion bash)
unisono_shell_file(${CMAKE_INSTALL_DATADIR}/zsh/site-functions _unisono completion zsh)
unisono_shell_file(${CMAKE_INSTALL_MANDIR}/man1 unisono.1 man)
get_target_property(shell_files unisono_cli UNISONO_SHELL_FILES)
add_custom_target(unisono_shell_files ALL DEPENDS ${shell_files})
