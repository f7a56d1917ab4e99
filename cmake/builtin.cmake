# The built-in kernels: builtin.c for the CPU and the committed builtin.ptx, packed into builtin.hdk and embedded in the
# library by the object library heddle_builtin. Needs no compiler for GPUs; tools/make-builtin-ptx makes the PTX.
enable_language(ASM)
set(builtin_source ${PROJECT_SOURCE_DIR}/src/kernel/builtin)
set(builtin_build ${PROJECT_BINARY_DIR}/builtin)
file(MAKE_DIRECTORY ${builtin_build})

# The packer is made from the library's own sources, so it must not need the library.
add_executable(heddle_pack
    ${PROJECT_SOURCE_DIR}/src/kernel/pack/pack.c
    ${PROJECT_SOURCE_DIR}/src/kernel/build.c
    ${PROJECT_SOURCE_DIR}/src/kernel/elf.c
    ${PROJECT_SOURCE_DIR}/src/kernel/file.c
    ${PROJECT_SOURCE_DIR}/src/kernel/ptx.c
    ${PROJECT_SOURCE_DIR}/src/base/error.c ${PROJECT_SOURCE_DIR}/src/base/handle.c)
set_target_properties(heddle_pack PROPERTIES OUTPUT_NAME heddle-pack RUNTIME_OUTPUT_DIRECTORY ${builtin_build})
target_include_directories(heddle_pack PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(heddle_pack PRIVATE heddle_flags)

# Compiled by hand, not as a target: the kernels' code is data here, and gets neither sanitizers nor coverage nor LTO.
set(builtin_compiler ${CMAKE_C_COMPILER})
if(CMAKE_C_COMPILER_TARGET)
    list(APPEND builtin_compiler --target=${CMAKE_C_COMPILER_TARGET})
endif()
if(CMAKE_SYSROOT)
    list(APPEND builtin_compiler --sysroot=${CMAKE_SYSROOT})
endif()
add_custom_command(
    OUTPUT ${builtin_build}/builtin.so
    COMMAND ${builtin_compiler} -std=c11 -O3 -fPIC -fvisibility=hidden -shared -DHD_CPU_MODULE
        -I${PROJECT_SOURCE_DIR}/include -o ${builtin_build}/builtin.so ${builtin_source}/builtin.c
    DEPENDS ${builtin_source}/builtin.c ${PROJECT_SOURCE_DIR}/include/heddle/kernel.h
    COMMENT "Compiling the built-in kernels for the CPU" VERBATIM)
add_custom_command(
    OUTPUT ${builtin_build}/builtin.hdk
    COMMAND heddle_pack ${builtin_build}/builtin.hdk ${builtin_source}/builtin.ptx ${builtin_build}/builtin.so
    DEPENDS heddle_pack ${builtin_source}/builtin.ptx ${builtin_build}/builtin.so
    COMMENT "Packing the built-in kernels" VERBATIM)
add_custom_target(heddle_builtin_file DEPENDS ${builtin_build}/builtin.hdk)

add_library(heddle_builtin OBJECT ${builtin_source}/embed.S)
target_include_directories(heddle_builtin PRIVATE ${builtin_build})
set_source_files_properties(${builtin_source}/embed.S PROPERTIES OBJECT_DEPENDS ${builtin_build}/builtin.hdk)
add_dependencies(heddle_builtin heddle_builtin_file)
