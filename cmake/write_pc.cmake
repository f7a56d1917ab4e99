# Writes heddle.pc during the installation; CMakeLists.txt sets the variables. Blanks in paths are escaped as pkg-config wants.
foreach(variable libdir includedir)
    if(NOT IS_ABSOLUTE "${${variable}}")
        set(${variable} "\${prefix}/${${variable}}")
    endif()
    string(REPLACE " " "\\ " ${variable} "${${variable}}")
endforeach()
string(REPLACE " " "\\ " prefix "${CMAKE_INSTALL_PREFIX}")
configure_file("${template}" "${output}" @ONLY)
