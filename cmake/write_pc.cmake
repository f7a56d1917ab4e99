# Writes heddle.pc during the installation; CMakeLists.txt sets the variables. Escapes blanks in
# paths as pkg-config requires.
#
# In a folder that the system searches by itself, paths are absolute, since compilers recognise
# these. Elsewhere they are relative to the file, so that the whole installation can be moved. There
# programs also get a run path, by which they find the library and the library's own programs.
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
