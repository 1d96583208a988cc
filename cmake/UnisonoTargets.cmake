# unisono_library(NAME [COMPONENT ...] HEADERS ... [INTERNAL_HEADERS ...] [PRIVATE_HEADERS ...]
#                 SOURCES ... [LINKS ...] [PRIVATE_LINKS ...])
#
# HEADERS are installed, and include only such. INTERNAL_HEADERS are for the floors above, and
# PRIVATE_HEADERS for the library itself.
#
# One library per folder of src/unisono, and the library datasets/. LINKS are the floors below that its
# headers may include: this list is the layer diagram, and tools/check_layers.py checks every #include
# against it. PRIVATE_LINKS are libraries that only its .cpp files use.
#
# A COMPONENT is exported in a file of its own, so that a project can use an installed core on a machine
# without the libraries that other components need, such as LibTorch. The component of torch/ is torch;
# the default is core.
function(unisono_library name)
  cmake_parse_arguments(
    ARG
    ""
    "COMPONENT"
    "HEADERS;INTERNAL_HEADERS;PRIVATE_HEADERS;SOURCES;LINKS;PRIVATE_LINKS"
    ${ARGN}
  )
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "unisono_library(${name}): unknown argument ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  set(target unisono_${name})
  add_library(${target} STATIC ${ARG_SOURCES} ${ARG_INTERNAL_HEADERS} ${ARG_PRIVATE_HEADERS})
  add_library(unisono::${name} ALIAS ${target})
  set(include_root ${PROJECT_SOURCE_DIR}/src)
  cmake_path(IS_PREFIX include_root "${CMAKE_CURRENT_SOURCE_DIR}" is_below_src)
  if(NOT is_below_src)
    set(include_root ${CMAKE_CURRENT_SOURCE_DIR})
  endif()
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${include_root} FILES ${ARG_HEADERS})
  set_target_properties(
    ${target}
    PROPERTIES EXPORT_NAME ${name} LINKER_LANGUAGE CXX VERIFY_INTERFACE_HEADER_SETS ON
  )
  target_compile_features(${target} PUBLIC cxx_std_20)
  unisono_unity(${target} 8)
  target_link_libraries(
    ${target}
    PUBLIC ${ARG_LINKS}
    PRIVATE $<BUILD_INTERFACE:unisono_options> ${ARG_PRIVATE_LINKS}
  )
  set(component core)
  if(ARG_COMPONENT)
    set(component ${ARG_COMPONENT})
  elseif(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/src/unisono/torch(/|$)")
    set(component torch)
  endif()
  install(
    TARGETS ${target}
    EXPORT unisono-${component}-targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  )
  # CMake strips only programs and shared libraries.
  install(
    CODE
      "if(CMAKE_INSTALL_DO_STRIP AND EXISTS \"${CMAKE_STRIP}\")
  execute_process(
    COMMAND \"${CMAKE_STRIP}\" --strip-debug --preserve-dates
      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/$<TARGET_FILE_NAME:${target}>\"
    COMMAND_ERROR_IS_FATAL ANY
  )
endif()"
  )
  set_property(GLOBAL APPEND PROPERTY UNISONO_INSTALLED_COMPONENTS ${component})
endfunction()

# unisono_unity(TARGET FILES_PER_UNIT)
#
# Compiles that many source files at a time: headers take the compiler longer than most files that
# include them. Names in the unnamed namespaces of such files must differ.
function(unisono_unity target files_per_unit)
  set_target_properties(
    ${target}
    PROPERTIES UNITY_BUILD ${UNISONO_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE ${files_per_unit}
  )
  if(UNISONO_UNITY_BUILD)
    # What is in an unnamed namespace of a .cpp file looks to GCC as if a header had it.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# unisono_test(NAME SOURCES ... [APART ...] [LINKS ...] [LABELS ...] [TIMEOUT seconds] [IN_ONE_PROCESS])
#
# A GoogleTest program NAME, run by ctest case by case; IN_ONE_PROCESS as one test, which is for programs
# that take longer to load than most of their cases to run: those with LibTorch, a quarter of a second.
# Its own sources are not optimized: GoogleTest's macros take the optimizer longer than the tests take to
# run. Those APART are compiled by themselves: they have names that others of its sources have, too.
function(unisono_test name)
  cmake_parse_arguments(ARG "IN_ONE_PROCESS" "TIMEOUT" "SOURCES;APART;LINKS;LABELS" ${ARGN})
  if(NOT UNISONO_BUILD_TESTS)
    return()
  endif()
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "unisono_test(${name}): unknown argument ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES} ${ARG_APART})
  target_compile_options(${name} PRIVATE -O0)
  unisono_unity(${name} 8)
  set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} unisono_options GTest::gmock GTest::gtest_main)
  if(ARG_IN_ONE_PROCESS)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
    return()
  endif()
  gtest_discover_tests(
    ${name}
    TEST_PREFIX ${name}.
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    TEST_LIST ${name}_cases
    PROPERTIES TIMEOUT ${ARG_TIMEOUT}
  )
  if(ARG_LABELS)
    # PROPERTIES cannot carry a list, so a script that ctest reads after the cases labels them.
    set(script ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
    file(
      GENERATE OUTPUT ${script}
      CONTENT
        "foreach(case IN LISTS ${name}_cases)\n  set_tests_properties(\"\${case}\" PROPERTIES LABELS \"${ARG_LABELS}\")\nendforeach()\n"
    )
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${script})
  endif()
endfunction()
