# Tells the installed static library where the library's own programs were installed: a program that it is linked into may be anywhere, and
# `cmake --install --prefix` may have changed the prefix. CMakeLists.txt sets the variables.
foreach(variable libdir libexecdir)
    if(NOT IS_ABSOLUTE "${${variable}}")
        set(${variable} "${CMAKE_INSTALL_PREFIX}/${${variable}}")
    endif()
endforeach()
string(REPLACE "\\" "\\\\" place "${libexecdir}")
string(REPLACE "\"" "\\\"" place "${place}")
file(MAKE_DIRECTORY "${work}")
set(object "${work}/place.c.o") # the name that it has in the archive
separate_arguments(flags UNIX_COMMAND "${flags}")
execute_process(COMMAND "${compiler}" ${flags} -std=c11 -fPIC "-I${source}/include" "-I${source}/src" "-DHDI_PROGRAMS=\"${place}\""
    -c "${source}/src/process/place.c" -o "${object}" RESULT_VARIABLE failed)
if(NOT failed)
    execute_process(COMMAND "${archiver}" r "$ENV{DESTDIR}${libdir}/libheddle.a" "${object}" RESULT_VARIABLE failed)
endif()
if(failed)
    message(FATAL_ERROR "libheddle.a could not be told where its programs are: ${failed}")
endif()
