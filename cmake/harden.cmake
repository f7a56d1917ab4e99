# The compiler's and the linker's protections, as the interface library heddle_hardened; the compiler's also as the list hardening_flags.
# What a compiler does not know is left out. docs/design.md says what is not protected, and why.
include(CheckCCompilerFlag)
include(CheckCSourceCompiles)

set(hardening_flags)
foreach(flag -fstack-protector-strong -fcf-protection=full)
    string(MAKE_C_IDENTIFIER "HEDDLE_HAS${flag}" has)
    check_c_compiler_flag(${flag} ${has})
    if(${has})
        list(APPEND hardening_flags ${flag})
    endif()
endforeach()

# Checked calls of the C library: level 3 knows sizes that are found out at run time.
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
if(CMAKE_C_FLAGS_${build_type} MATCHES "-O[123s]")
    check_c_source_compiles("#include <features.h>
#if !__GLIBC_PREREQ(2, 34) || (!defined(__clang__) && __GNUC__ < 12)
#error no level 3
#endif
int main(void) { return 0; }" HEDDLE_HAS_FORTIFY_3)
    set(level 2)
    if(HEDDLE_HAS_FORTIFY_3)
        set(level 3)
    endif()
    list(APPEND hardening_flags -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${level})
endif()
target_compile_options(heddle_hardened INTERFACE ${hardening_flags})
target_link_options(heddle_hardened INTERFACE -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)

# On the way of a launch, a copy, an allocation and a look at a ticket the check of the stack would be up to 9 % of the instructions. What
# these files keep on the stack has places for as many as there are lanes or parameters at most, by numbers that were checked before,
# and text that snprintf cuts off.
if(HEDDLE_HAS_fstack_protector_strong)
    set_source_files_properties(src/buffer/alloc.c src/transfer/copy.c src/buffer/submit.c src/buffer/submit_slow.c src/buffer/uses.c
        src/engine/failures.c src/engine/lane.c src/engine/ticket.c
        src/kernel/launch.c src/memory/thread_cache.c PROPERTIES COMPILE_OPTIONS -fno-stack-protector)
endif()

# Fibers change stacks, and the processor's second stack would have to be changed with them; so these files say that they cannot live with one, and
# the linker says so of what they are linked into. Where jumps may go is checked all the same.
if(HEDDLE_HAS_fcf_protection_full)
    set_source_files_properties(src/simulator/cpu_context.c PROPERTIES COMPILE_OPTIONS "-fcf-protection=none;-fcf-protection=branch")
endif()
