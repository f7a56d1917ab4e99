# The tests of heddle.hpp, and the examples in C++. tests/CMakeLists.txt includes this file if a C++
# compiler is installed.

check_pie_supported(LANGUAGES CXX)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD_REQUIRED ON)

# heddle_cpp_program NAME VERSION SOURCE: makes a program with the static library, compiled with all
# warnings
function(heddle_cpp_program target version source)
    add_executable(${target} ${source})
    set_target_properties(${target} PROPERTIES CXX_STANDARD ${version})
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
    if(HEDDLE_WERROR)
        target_compile_options(${target} PRIVATE -Werror)
    endif()
    target_link_libraries(${target} PRIVATE heddle_flags heddle_static Threads::Threads ${CMAKE_DL_LIBS})
    add_dependencies(${target} heddle_worker heddle_probe)
endfunction()

# The kernels of test_launch.cpp; also for GPUs if the tests run on GPUs.
set(kinds ${CMAKE_CURRENT_BINARY_DIR}/argument_kinds.hdk)
set(parts --no-gpu)
if(HEDDLE_TEST_DRIVER STREQUAL nvidia)
    set(parts)
endif()
add_custom_command(OUTPUT ${kinds}
    COMMAND heddle_tool cc ${parts} -I ${PROJECT_SOURCE_DIR}/include -o ${kinds} ${CMAKE_CURRENT_SOURCE_DIR}/cpp/argument_kinds.c
    DEPENDS heddle_tool ${CMAKE_CURRENT_SOURCE_DIR}/cpp/argument_kinds.c ${PROJECT_SOURCE_DIR}/include/heddle/kernel.h
    COMMENT "Compiling the kernels of tests/cpp" VERBATIM)
add_custom_target(test_kernels_cpp DEPENDS ${kinds})

file(GLOB cpp_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cpp/test_*.cpp)
foreach(source IN LISTS cpp_tests)
    get_filename_component(stem ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "" short ${stem})
    heddle_test_head(${source})
    set(tier quick)
    if(HEAD_TIER)
        set(tier ${HEAD_TIER})
    endif()
    set(programs ${short})
    heddle_cpp_program(test_cpp_${short} 17 ${source})
    if(short STREQUAL expected)
        target_compile_options(test_cpp_${short} PRIVATE -fno-exceptions -fno-rtti)
        if("cxx_std_23" IN_LIST CMAKE_CXX_COMPILE_FEATURES) # std::expected
            list(APPEND programs ${short}_standard)
            heddle_cpp_program(test_cpp_${short}_standard 23 ${source})
            target_compile_definitions(test_cpp_${short}_standard PRIVATE HEDDLE_NO_EXCEPTIONS)
        endif()
    endif()
    foreach(program IN LISTS programs)
        add_dependencies(test_cpp_${program} test_kernels_cpp)
        target_compile_definitions(test_cpp_${program} PRIVATE HD_TEST_KERNEL_FILE="${kinds}")
        foreach(placement IN LISTS HEDDLE_TEST_PLACEMENTS)
            set(placement_tier ${tier})
            if(tier STREQUAL quick AND NOT placement STREQUAL thread)
                set(placement_tier full)
            endif()
            add_test(NAME cpp/${program}/${placement} COMMAND test_cpp_${program})
            heddle_test_properties(cpp/${program}/${placement} "cpp;${placement}" ${placement_tier}
                HEDDLE_DRIVER=${HEDDLE_TEST_DRIVER} HEDDLE_PLACEMENT=${placement} HEDDLE_WORKER=$<TARGET_FILE:heddle_worker>)
        endforeach()
    endforeach()
endforeach()
