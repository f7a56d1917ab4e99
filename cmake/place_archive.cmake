# Stores the folder of the library's own programs in the installed static library, since a program
# that contains the library may be anywhere. This happens at installation, because `cmake --install
# --prefix` may change the prefix. CMakeLists.txt sets the variables.
foreach(variable libdir libexecdir)
    if(NOT IS_ABSOLUTE "${${variable}}")
        set(${variable} "${CMAKE_INSTALL_PREFIX}/${${variable}}")
    endif()
endforeach()
string(REPLACE "\\" "\\\\" place "${libexecdir}")
string(REPLACE "\"" "\\\"" place "${place}")
file(MAKE_DIRECTORY "${work}")
set(object "${work}/place.c.o") # the object's name in the archive
separate_arguments(flags UNIX_COMMAND "${flags}")
execute_process(COMMAND "${compiler}" ${flags} -std=c11 -fPIC "-I${source}/include" "-I${source}/src" "-DHDI_PROGRAMS=\"${place}\""
    -c "${source}/src/process/place.c" -o "${object}" RESULT_VARIABLE failed)
if(NOT failed)
    execute_process(COMMAND "${archiver}" r "$ENV{DESTDIR}${libdir}/libheddle.a" "${object}" RESULT_VARIABLE failed)
endif()
if(failed)
    message(FATAL_ERROR "libheddle.a could not be told where its programs are: ${failed}")
endif()
