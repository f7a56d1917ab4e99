# HeddleKernels.cmake - defines heddle_add_kernels, which adds kernels to a build.
# find_package(Heddle) includes this file, and so does a build of Heddle's own tree.
#
#   heddle_add_kernels(<target> [EMBED] <source>... [NAME <name>] [OPTIONS <option>...])
#
# As part of building the target, `heddle cc` compiles kernel source (.c) to kernel files, and CUDA
# C++ (.cu, .cuh) to fatbins.
#   - each source becomes a file of its own: scale.c becomes scale.hdk, k.cu becomes k.fatbin
#   - NAME: all sources, which are kernel source, become one file, <name>.hdk
#   - without EMBED the files are written to ${CMAKE_CURRENT_BINARY_DIR}; the target's property HEDDLE_KERNEL_FILES lists them
#   - with EMBED the program contains the kernels: #include "scale.h" declares scale and scale_size,
#     for hd_module_load
#   - two targets of one folder may use the same kernels: with EMBED each target gets its own copy,
#     and without EMBED the file is made once
#   - OPTIONS: further options of `heddle cc`, such as -g or --gpu-arch sm_80; they may be generator expressions
# Sources find the headers that the target finds. The build tracks the included headers, so a
# changed header builds its kernels again. The target must be made in the same directory. If the
# project uses C, CMAKE_C_COMPILER compiles for the CPU.
cmake_policy(PUSH)
cmake_policy(VERSION 3.22)

# Adds the commands for one kernel file.
function(heddle_add_kernel_file target embed name ending options)
    set(sources)
    foreach(source IN LISTS ARGN)
        get_filename_component(source "${source}" ABSOLUTE)
        list(APPEND sources "${source}")
    endforeach()
    get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
    set(compiler)
    if("C" IN_LIST languages AND NOT CMAKE_C_COMPILER MATCHES " ")
        set(compiler ${CMAKE_COMMAND} -E env "CC=${CMAKE_C_COMPILER}")
    endif()
    set(folder "${CMAKE_CURRENT_BINARY_DIR}")
    set(others)
    if(embed)
        string(MAKE_C_IDENTIFIER "${name}" name)
        set(folder "${folder}/heddle_kernels/${target}") # two targets may embed one source, each with its own headers
        file(MAKE_DIRECTORY "${folder}")
        set(ending c)
        if(NOT "C" IN_LIST languages)
            set(ending cc)
        endif()
        list(APPEND options --embed ${name})
        set(others "${folder}/${name}.h")
        target_include_directories(${target} PRIVATE "${folder}")
    endif()
    set(result "${folder}/${name}.${ending}")
    # without EMBED, a file of two targets is made for the first target
    set(made_from "${sources} ${options}")
    get_property(maker GLOBAL PROPERTY "HEDDLE_MAKER_OF_${result}")
    get_property(made_before GLOBAL PROPERTY "HEDDLE_SOURCES_OF_${result}")
    if(maker AND embed)
        message(FATAL_ERROR "heddle_add_kernels(${target} ...): the target has kernels of the name ${name} already; give these another NAME")
    elseif(maker AND NOT made_before STREQUAL made_from)
        message(FATAL_ERROR "heddle_add_kernels(${target} ...): ${name}.${ending} is made for ${maker} already, from other sources "
            "or with other options; give one of them another NAME, or EMBED")
    elseif(maker)
        if(NOT maker STREQUAL target)
            add_dependencies(${target} ${maker})
        endif()
        set_property(TARGET ${target} APPEND PROPERTY HEDDLE_KERNEL_FILES "${result}")
        return()
    endif()
    set_property(GLOBAL PROPERTY "HEDDLE_MAKER_OF_${result}" ${target})
    set_property(GLOBAL PROPERTY "HEDDLE_SOURCES_OF_${result}" "${made_from}")
    set(includes "$<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>")
    add_custom_command(
        OUTPUT "${result}" ${others}
        COMMAND ${compiler} "$<TARGET_FILE:heddle::heddle_tool>" cc "$<$<BOOL:${includes}>:-I$<JOIN:${includes},;-I>>" ${options}
            --depfile "${result}.d" -o "${result}" ${sources}
        DEPENDS ${sources} "$<TARGET_FILE:heddle::heddle_tool>"
        DEPFILE "${result}.d"
        COMMENT "Compiling kernels ${name}"
        COMMAND_EXPAND_LISTS VERBATIM)
    target_sources(${target} PRIVATE "${result}" ${others})
    if(NOT embed)
        set_property(TARGET ${target} APPEND PROPERTY HEDDLE_KERNEL_FILES "${result}")
    endif()
endfunction()

function(heddle_add_kernels target)
    cmake_parse_arguments(PARSE_ARGV 1 kernels "EMBED" "NAME" "OPTIONS")
    if(NOT TARGET ${target} OR NOT kernels_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "heddle_add_kernels(${target} ...): the first argument is a target, and sources follow, before OPTIONS")
    endif()
    if(kernels_NAME)
        heddle_add_kernel_file(${target} "${kernels_EMBED}" "${kernels_NAME}" hdk "${kernels_OPTIONS}"
            ${kernels_UNPARSED_ARGUMENTS})
        return()
    endif()
    foreach(source IN LISTS kernels_UNPARSED_ARGUMENTS)
        get_filename_component(name "${source}" NAME_WLE)
        set(ending hdk)
        if(source MATCHES "\\.cuh?$")
            set(ending fatbin)
        endif()
        heddle_add_kernel_file(${target} "${kernels_EMBED}" "${name}" ${ending} "${kernels_OPTIONS}" "${source}")
    endforeach()
endfunction()

cmake_policy(POP)
