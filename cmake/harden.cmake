# The protections of compiler and linker, as the interface library heddle_hardened; the compiler's
# flags also as the list hardening_flags. Leaves out a flag that the compiler does not know.
# docs/design.md lists the parts without protection, and the reasons.
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

# Checked calls of the C library. Level 3 also checks sizes that are known only at run time.
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

# In a launch, a copy, an allocation and a check of a ticket, the check of the stack would take up
# to 9 % of the instructions. Arrays on the stack of these files are large enough for all lanes or
# parameters, and their indices were checked before. snprintf cuts off texts.
if(HEDDLE_HAS_fstack_protector_strong)
    set_source_files_properties(src/buffer/alloc.c src/transfer/copy.c src/buffer/submit.c src/buffer/submit_slow.c src/buffer/uses.c
        src/engine/failures.c src/engine/lane.c src/engine/ticket.c
        src/kernel/launch.c src/memory/thread_cache.c PROPERTIES COMPILE_OPTIONS -fno-stack-protector)
endif()

# Fibers switch stacks, but not the processor's shadow stack. So these files are marked as
# incompatible with a shadow stack, and the linker marks their program in the same way. The
# processor still checks the targets of jumps.
if(HEDDLE_HAS_fcf_protection_full)
    set_source_files_properties(src/simulator/cpu_context.c PROPERTIES COMPILE_OPTIONS "-fcf-protection=none;-fcf-protection=branch")
endif()
