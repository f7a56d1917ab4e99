# Writes heddle.pc during the installation; CMakeLists.txt sets the variables. Blanks in paths are escaped as pkg-config wants.
#
# Where the system looks by itself, paths are the plain ones, which compilers recognise. Elsewhere they are relative to the file, so that the
# installation may be moved as a whole; and programs get a run path, so that they start, and find the library's own programs.
set(rpath "")
string(REPLACE " " "\\ " prefix "${CMAKE_INSTALL_PREFIX}")
if(NOT CMAKE_INSTALL_PREFIX MATCHES "^/(usr/?)?$")
    set(rpath " -Wl,-rpath,\${libdir}")
    if(NOT IS_ABSOLUTE "${libdir}")
        file(RELATIVE_PATH up "/${libdir}/pkgconfig" "/")
        string(REGEX REPLACE "/$" "" up "${up}")
        set(prefix "\${pcfiledir}/${up}")
    endif()
endif()
foreach(variable libdir includedir bindir datadir)
    if(NOT IS_ABSOLUTE "${${variable}}")
        set(${variable} "\${prefix}/${${variable}}")
    endif()
    string(REPLACE " " "\\ " ${variable} "${${variable}}")
endforeach()
configure_file("${template}" "${output}" @ONLY)
