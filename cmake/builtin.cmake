# The built-in kernels. NAME.c, compiled for the CPU, and the committed generated/NAME.ptx are
# packed into NAME.hdk. The object library heddle_builtin embeds this file in the library. This
# needs no compiler for GPUs: tools/make-builtin-ptx makes the PTX. In the same way,
# heddle_tool_kernels embeds the kernels of the tool (cli/p2p/kernels), and heddle_bench_kernels
# those of the benchmarks (bench/kernels).
enable_language(ASM)
set(builtin_source ${PROJECT_SOURCE_DIR}/src/kernel/builtin)
set(builtin_build ${PROJECT_BINARY_DIR}/builtin)
file(MAKE_DIRECTORY ${builtin_build})

# The library contains the packed kernels, so the packer uses some sources of the library, but not
# the library itself.
add_executable(heddle_pack
    ${PROJECT_SOURCE_DIR}/cmake/pack.c
    ${PROJECT_SOURCE_DIR}/src/kernel/file.c
    ${PROJECT_SOURCE_DIR}/src/kernel/ptx.c
    ${PROJECT_SOURCE_DIR}/src/base/descriptor.c
    ${PROJECT_SOURCE_DIR}/src/base/error.c
    ${PROJECT_SOURCE_DIR}/src/base/handle.c
    ${PROJECT_SOURCE_DIR}/src/base/lock.c
    ${PROJECT_SOURCE_DIR}/src/base/presence.c
    ${PROJECT_SOURCE_DIR}/src/base/sized.c
    ${PROJECT_SOURCE_DIR}/src/base/text.c
    ${PROJECT_SOURCE_DIR}/src/base/thread.c
    ${PROJECT_SOURCE_DIR}/src/base/wait.c)
set_target_properties(heddle_pack PROPERTIES OUTPUT_NAME heddle-pack RUNTIME_OUTPUT_DIRECTORY ${builtin_build})
target_include_directories(heddle_pack PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(heddle_pack PRIVATE heddle_flags Threads::Threads ${CMAKE_DL_LIBS})

# Compiled by commands of their own, not as a target: the kernels' code is data here, and gets no
# sanitizers, no coverage and no LTO.
set(builtin_compiler ${CMAKE_C_COMPILER})
if(CMAKE_C_COMPILER_TARGET)
    list(APPEND builtin_compiler --target=${CMAKE_C_COMPILER_TARGET})
endif()
if(CMAKE_SYSROOT)
    list(APPEND builtin_compiler --sysroot=${CMAKE_SYSROOT})
endif()
# Makes ${builtin_build}/NAME.hdk from NAME.c and generated/NAME.ptx of the folder, and appends it to the list `files`.
function(heddle_kernel_file name folder files)
    file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.h ${PROJECT_SOURCE_DIR}/include/heddle/kernel*.h)
    add_custom_command(
        OUTPUT ${builtin_build}/${name}.so
        COMMAND ${builtin_compiler} -std=c11 -O3 -ffp-contract=fast -fPIC -fvisibility=hidden -shared -DHD_CPU_MODULE
            -I${PROJECT_SOURCE_DIR}/include -o ${builtin_build}/${name}.so ${folder}/${name}.c
        DEPENDS ${folder}/${name}.c ${headers}
        COMMENT "Compiling the kernels of ${name}.c for the CPU" VERBATIM)
    add_custom_command(
        OUTPUT ${builtin_build}/${name}.hdk
        COMMAND heddle_pack ${builtin_build}/${name}.hdk ${folder}/generated/${name}.ptx ${builtin_build}/${name}.so
        DEPENDS heddle_pack ${folder}/generated/${name}.ptx ${builtin_build}/${name}.so
        COMMENT "Packing the kernels of ${name}.c" VERBATIM)
    set(${files} ${${files}} ${builtin_build}/${name}.hdk PARENT_SCOPE)
endfunction()

# Makes an object library that contains the kernel files of an embed.S as bytes.
function(heddle_embed library source)
    add_custom_target(${library}_file DEPENDS ${ARGN})
    add_library(${library} OBJECT ${source})
    target_include_directories(${library} PRIVATE ${builtin_build})
    target_link_libraries(${library} PRIVATE heddle_hardened)
    set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS "${ARGN}")
    add_dependencies(${library} ${library}_file)
endfunction()

set(builtin_files)
foreach(name builtin tensor matmul probe) # in the order of embed.S
    heddle_kernel_file(${name} ${builtin_source} builtin_files)
endforeach()
heddle_embed(heddle_builtin ${builtin_source}/embed.S ${builtin_files})

set(tool_kernels)
heddle_kernel_file(p2p ${PROJECT_SOURCE_DIR}/cli/p2p/kernels tool_kernels)
heddle_embed(heddle_tool_kernels ${PROJECT_SOURCE_DIR}/cli/p2p/kernels/embed.S ${tool_kernels})
if(HEDDLE_BENCH)
    set(bench_kernels)
    heddle_kernel_file(layouts ${PROJECT_SOURCE_DIR}/bench/kernels bench_kernels)
    heddle_embed(heddle_bench_kernels ${PROJECT_SOURCE_DIR}/bench/kernels/embed.S ${bench_kernels})
endif()
