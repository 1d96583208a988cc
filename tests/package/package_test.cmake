# cmake -DBUILD=... -DSOURCE=... -DWORK=... -DFLAGS=... -P package_test.cmake
#
# Installs the build BUILD, moves the installed files to another folder, and builds and runs the project
# outside/ against them. The core must serve that project without the libraries of datasets/.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

# find_unisono(ARGUMENTS passes|fails [OPTION...]): configures a project that only searches the package.
function(find_unisono arguments expected_status)
  file(
    WRITE ${WORK}/find/CMakeLists.txt
    "cmake_minimum_required(VERSION 3.25)\nproject(find LANGUAGES CXX)\nfind_package(unisono ${arguments})\n"
  )
  file(REMOVE_RECURSE ${WORK}/find/build)
  run(
    "find_package(unisono ${arguments})"
    ${expected_status}
    ${CMAKE_COMMAND} -S ${WORK}/find -B ${WORK}/find/build -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${prefix} ${ARGN}
  )
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
run("installing" passes ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
set(prefix ${WORK}/moved)
file(RENAME ${WORK}/first ${prefix})

file(GLOB_RECURSE package_files ${prefix}/*.cmake)
if(NOT package_files)
  message(FATAL_ERROR "no package files were installed")
endif()
foreach(file IN LISTS package_files)
  file(READ ${file} text)
  foreach(folder IN ITEMS ${SOURCE} ${BUILD} ${WORK})
    string(FIND "${text}" "${folder}/" position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "${file} holds a path of the build: ${folder}")
    endif()
  endforeach()
endforeach()
file(GLOB_RECURSE tests_installed ${prefix}/*_test*)
if(tests_installed)
  message(FATAL_ERROR "tests were installed: ${tests_installed}")
endif()

# expect_printed(FILE ARGUMENT...): FILE was installed, and holds the output of the installed program.
function(expect_printed file)
  run("unisono ${ARGN}" passes ${prefix}/bin/unisono ${ARGN})
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "${file} was not installed")
  endif()
  file(READ ${prefix}/${file} text)
  if(NOT text STREQUAL output OR text STREQUAL "")
    message(FATAL_ERROR "${file} is not what unisono ${ARGN} prints:\n${text}")
  endif()
endfunction()
expect_printed(share/bash-completion/completions/unisono completion bash)
expect_printed(share/zsh/site-functions/_unisono completion zsh)
expect_printed(share/man/man1/unisono.1 man)

# A Python package in another folder, as pip installs it.
file(WRITE ${WORK}/site/unisono/__init__.py "raise ImportError('nobody asked for that')\n")
file(WRITE ${WORK}/site/unisono/_startup/sitecustomize.py "")
set(print_path "print(__import__('os').environ['PYTHONPATH'], end='')")
set(
  with_alias
  run
  --backend-alias
  gloo=unisono
  ${PYTHON}
  -c
  ${print_path}
)
run(
  "unisono ${with_alias}"
  passes
  ${CMAKE_COMMAND} -E env PYTHONPATH=${WORK}/site ${prefix}/bin/unisono ${with_alias}
)
if(NOT output STREQUAL "${WORK}/site/unisono/_startup:${WORK}/site")
  message(FATAL_ERROR "the package that ${PYTHON} finds was not taken: ${output}")
endif()

run(
  "configuring outside/"
  passes
  ${CMAKE_COMMAND} -S ${SOURCE}/tests/package/outside -B ${WORK}/outside -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_PREFIX_PATH=${prefix}
  -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF ${without_libraries}
)
run("building outside/" passes ${CMAKE_COMMAND} --build ${WORK}/outside)
run("running outside" passes ${WORK}/outside/outside)
if(NOT output STREQUAL "f64 24 Timeout InvalidArgument\n")
  message(FATAL_ERROR "outside printed: ${output}")
endif()
if(DATASETS)
  run(
    "configuring outside/ with datasets"
    passes
    ${CMAKE_COMMAND} -S ${SOURCE}/tests/package/outside -B ${WORK}/outside -DDATASETS=ON
    -UCMAKE_DISABLE_FIND_PACKAGE_*
  )
  run("building outside/ with datasets" passes ${CMAKE_COMMAND} --build ${WORK}/outside)
  run("running outside_datasets" passes ${WORK}/outside/outside_datasets)
  if(NOT output STREQUAL "CorruptData CorruptData\n")
    message(FATAL_ERROR "outside_datasets printed: ${output}")
  endif()
endif()

# The program loads no library of datasets.
file(
  GET_RUNTIME_DEPENDENCIES
  RESOLVED_DEPENDENCIES_VAR loaded
  UNRESOLVED_DEPENDENCIES_VAR not_found
  EXECUTABLES ${prefix}/bin/unisono
)
if(NOT loaded)
  message(FATAL_ERROR "no library of the program unisono was found")
endif()
list(FILTER loaded INCLUDE REGEX "lib(jpeg|png|sndfile)")
if(loaded)
  message(FATAL_ERROR "the program unisono loads ${loaded}")
endif()

find_unisono("REQUIRED" passes)
find_unisono("REQUIRED" passes ${without_libraries})
if(DATASETS)
  find_unisono("REQUIRED COMPONENTS datasets" passes)
  set(missing "needs the development files of libjpeg-turbo, libpng and libsndfile")
else()
  set(missing "installed without its datasets component")
endif()
find_unisono("REQUIRED COMPONENTS datasets" fails ${without_libraries})
# CMake breaks the lines of messages.
string(REGEX REPLACE "[ \n]+" " " output "${output}")
if(NOT output MATCHES "${missing}")
  message(FATAL_ERROR "the message does not name the cause of the missing datasets:\n${output}")
endif()
find_unisono("99.0 REQUIRED" fails)
find_unisono("REQUIRED COMPONENTS violins" fails)
if(NOT output MATCHES "violins")
  message(FATAL_ERROR "the message does not name the missing component:\n${output}")
endif()
if(NOT TORCH)
  find_unisono("REQUIRED COMPONENTS torch" fails)
  if(NOT output MATCHES "installed without its torch component")
    message(FATAL_ERROR "the message does not name the cause of the missing torch:\n${output}")
  endif()
endif()
file(REMOVE_RECURSE ${WORK})
