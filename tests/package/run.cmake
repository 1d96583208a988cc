# run(WHAT passes|fails COMMAND...): runs a command, and ends the test if the exit status differs from
# the expected one. Sets `output` to all that the command printed.
function(run what expected_status)
  execute_process(
    COMMAND ${ARGN}
    RESULT_VARIABLE status
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output
  )
  if(NOT status EQUAL 0 AND expected_status STREQUAL "passes")
    message(FATAL_ERROR "${what} failed (${status}):\n${output}")
  elseif(status EQUAL 0 AND expected_status STREQUAL "fails")
    message(FATAL_ERROR "${what} should have failed:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# Options that hide the libraries of datasets/ from find_package().
set(without_libraries "")
foreach(package IN ITEMS JPEG PNG SndFile)
  list(APPEND without_libraries -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
