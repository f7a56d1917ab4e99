#!/usr/bin/env bash
# test_math.sh - mathematics in kernel source, by every library that is here. The GPU's code with libclc runs here, too: its LLVM
# text is compiled for the CPU. MPFR has the right results.
#
# Promise: Functions of heddle/kernel_math.h are within CUDA's bounds on the CPU and, with libclc, on GPUs; their PTX is complete.
# Tier: full.
set -u
source=$1
build=$2
heddle=$build/heddle
[ -x "$heddle" ] || {
    echo "skipped: $heddle is not built"
    exit 77
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
kernels=$source/tests/kernel/math/kernels.c
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
without() {
    echo "not tested: $*"
}

# compile_compare RESULT FLAGS...
compile_compare() {
    local result=$1
    shift
    # shellcheck disable=SC2086
    ${CC:-cc} -std=gnu11 -O1 -I"$source/include" -o "$result" "$source/tests/kernel/math/compare.c" "$@" \
        -L"$build" -lheddle -Wl,-rpath,"$build" -lmpfr -lgmp -lm
}

mpfr=yes
printf '#include <stdio.h>\n#include <mpfr.h>\n' | ${CC:-cc} -E -o /dev/null - 2>/dev/null || {
    without "results (no mpfr.h: libmpfr-dev)"
    mpfr=no
}

# The CPU's part, on a host device.
"$heddle" cc --no-gpu -o cpu.hdk -Wall -Wextra -Werror "$kernels" || fail "the CPU's part does not compile"
if [ $mpfr = yes ]; then
    compile_compare compare || fail "compare.c does not compile"
    ./compare 1000 cpu.hdk || fail "the CPU's part is not within the bounds"
fi

# The GPU's part by each library.
clang=no
made=
for library in libclc libdevice; do
    if "$heddle" cc --math $library --verbose --no-cpu -o gpu.hdk --emit-ptx $library.ptx -Wall -Wextra -Werror "$kernels" 2>err; then
        clang=yes
        made="$made $library"
        grep -q '\.extern \.func' $library.ptx && fail "with $library something is missing: $(grep '\.extern \.func' $library.ptx)"
        [ "$(grep -c '\.visible \.entry f[36][24]_' $library.ptx)" -ge 100 ] || fail "with $library there are no kernels"
        grep -q 'PIBITS_TBL' $library.ptx && ! grep -q '\.align 16 \.b8 PIBITS_TBL\[' $library.ptx &&
            fail "libclc's table is not aligned to what reads it"
        if command -v ptxas >/dev/null; then
            ptxas -arch=sm_90 -o /dev/null $library.ptx || fail "ptxas refuses the PTX with $library"
        else
            without "ptxas with $library (no ptxas in PATH)"
        fi
        grep -- '-mlink-builtin-bitcode' err | tail -n 1 >$library.command
    elif grep -q "found no clang" err; then
        without "the GPU's part ($(head -n 1 err))"
    elif grep -q "is in a library for GPUs" err; then
        without "$library (not installed)"
    else
        fail "the GPU's part does not compile with $library: $(cat err)"
    fi
done

# A kernel that needs no library is the same with each.
if [ $clang = yes ]; then
    echo '#include <heddle/kernel.h>
HD_KERNEL(k, HD_INOUT(float, y)) { y[0] = sqrtf(fabsf(y[0])) + fmaf(y[0], 2, floorf(y[1])) / hd_fast_exp(y[1]); }
HD_KERNEL(rsqrt, HD_INOUT(float, y)) { y[0] = rsqrtf(y[0]); }
HD_KERNEL(sin, HD_INOUT(float, y)) { y[0] = hd_fast_sin(y[0]); }' >plain.c # kernels may have names of functions
    for library in none libclc libdevice; do
        "$heddle" cc --math $library -o plain.hdk --emit-ptx plain_$library.ptx plain.c || fail "a square root needs a library"
    done
    cmp plain_none.ptx plain_libclc.ptx && cmp plain_none.ptx plain_libdevice.ptx || fail "a library changed a kernel without calls"
    grep -q 'sqrt\.rn\.f32' plain_none.ptx || fail "the square root is not the rounded one"
    grep -q 'ex2\.approx' plain_none.ptx || fail "the fast exponential is not the instruction"
fi

# libclc's functions as the GPU's compiler inlined them: its LLVM text, for this processor. Conversions saturate on GPUs.
run_here() {
    local command
    command=$(sed -e 's/ -S / -S -emit-llvm /' -e 's| -o [^ ]*| -o gpu.ll|' libclc.command)
    $command || return 1
    sed -e 's/^target triple.*/target triple = "x86_64-pc-linux-gnu"/' -e '/^target datalayout/d' \
        -e 's/"target-cpu"="[^"]*"/"target-cpu"="haswell"/' -e 's/"target-features"="[^"]*"/"target-features"="+fma,+avx2"/' \
        -e 's/\bconvergent //g' -e '/^@PIBITS_TBL/s/align 1\b/align 16/' \
        -e '/^declare.*@llvm\.nvvm/s/#[0-9]*//' -e 's/@llvm\.nvvm\./@gpu./g' \
        -e 's/fpto\([su]\)i float \([^ ]*\) to i\([0-9]*\)/call i\3 @llvm.fpto\1i.sat.i\3.f32(float \2)/' \
        -e 's/fpto\([su]\)i double \([^ ]*\) to i\([0-9]*\)/call i\3 @llvm.fpto\1i.sat.i\3.f64(double \2)/' \
        -e ':again' -e 's/@gpu\([a-z0-9_]*\)\./@gpu\1_/' -e 't again' gpu.ll >cpu.ll
    for name in $(grep -o 'llvm\.fpto[su]i\.sat\.i[0-9]*\.f[0-9]*' cpu.ll | sort -u); do
        case $name in
        *.f32) echo "declare ${name:16:3} @$name(float)" ;;
        *.f64) echo "declare ${name:16:3} @$name(double)" ;;
        esac
    done >declared
    cat declared >>cpu.ll
    clang -O2 -c -x ir -Wno-override-module -o kernels.o cpu.ll &&
        ${CC:-cc} -O1 -c -o instructions.o "$source/tests/kernel/math/instructions.c" &&
        compile_compare direct -DDIRECT kernels.o instructions.o
}
case $made in
*libclc*)
    if [ $mpfr = no ]; then
        :
    elif ! clang --version 2>/dev/null | grep -q 'clang version 14' || ! grep -qw fma /proc/cpuinfo; then
        without "libclc's results (they take clang 14 and a processor of x86-64 with fma)"
    elif run_here; then
        ./direct 1000 || fail "libclc's functions are not within the bounds"
    else
        fail "the GPU's part does not compile for the CPU"
    fi
    ;;
esac
[ "$failures" -eq 0 ]
