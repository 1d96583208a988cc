# Run by CPack between the installation and the .deb: asks dpkg-shlibdeps for the Debian packages of the
# shared libraries. CPack's own variable for that would make both MPIs dependencies, though each is only
# for its own module, which unisono loads if the MPI is there.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
find_program(SHLIBDEPS dpkg-shlibdeps REQUIRED)

# dpkg-shlibdeps demands this file.
set(folder ${CPACK_TOPLEVEL_DIRECTORY}/shlibdeps)
file(WRITE ${folder}/debian/control "Source: unisono\n\nPackage: unisono\nArchitecture: any\n")
set(prefix ${CPACK_TEMPORARY_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX})
file(GLOB programs ${prefix}/bin/*)
file(GLOB modules ${prefix}/lib*/unisono/*.so)
set(files -dDepends ${programs})
if(modules)
  list(APPEND files -dSuggests ${modules})
endif()
# It warns of programs outside of a folder that debian/ names.
execute_process(
  COMMAND ${SHLIBDEPS} -O ${files}
  WORKING_DIRECTORY ${folder}
  OUTPUT_VARIABLE found
  ERROR_VARIABLE problems
  RESULT_VARIABLE status
)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "dpkg-shlibdeps failed: ${problems}")
endif()
foreach(field IN ITEMS Depends Suggests)
  string(TOUPPER CPACK_DEBIAN_PACKAGE_${field} variable)
  if(found MATCHES "shlibs:${field}=([^\n]+)")
    set(${variable} "${CMAKE_MATCH_1}, ${${variable}}")
  endif()
endforeach()
