#!/usr/bin/env bash
# test_math.sh - mathematics in kernel source, with every installed library. The code for GPUs runs
# here, too: its LLVM text is compiled for the CPU. MPFR computes the right results.
#
# Promise: Functions of heddle/kernel_math.h are within CUDA's bounds on the CPU and in GPU code; their PTX is complete.
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
. "$source/tests/support/installed.sh"

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
    without "MPFR: right results"
    mpfr=no
}

# The part for the CPU, on a host device.
"$heddle" cc --no-gpu -o cpu.hdk -Wall -Wextra -Werror "$kernels" || fail "the CPU's part does not compile"
if [ $mpfr = yes ]; then
    compile_compare compare || fail "compare.c does not compile"
    ./compare 1000 cpu.hdk || fail "the CPU's part is not within the bounds"
fi

# The part for GPUs, with each library. This compiler keeps the text that heddle cc changed.
cat >keeping <<END
#!/bin/sh
for argument in "\$@"; do
    case \$argument in
    *.ll) [ ! -e "\$argument" ] || cp "\$argument" "$work/kept.ll" ;;
    esac
done
exec clang "\$@"
END
chmod +x keeping
clang=no
made=
for library in libclc libdevice; do
    if CLANG=$work/keeping "$heddle" cc --math $library --no-cpu -o gpu.hdk --emit-ptx $library.ptx -Wall -Wextra -Werror "$kernels" 2>err; then
        clang=yes
        made="$made $library"
        grep -q '\.extern \.func' $library.ptx && fail "with $library something is missing: $(grep '\.extern \.func' $library.ptx)"
        [ "$(grep -c '\.visible \.entry f[36][24]_' $library.ptx)" -ge 100 ] || fail "with $library there are no kernels"
        grep -q 'PIBITS_TBL' $library.ptx && ! grep -q '\.align 16 \.b8 PIBITS_TBL\[' $library.ptx &&
            fail "libclc's table is not aligned to what reads it"
        # tables that the threads of a warp read at different places are in global memory; only
        # large arguments use the table PIBITS_TBL
        grep '^\.const' $library.ptx | grep -v PIBITS_TBL && fail "with $library a table is in constant memory"
        grep 'getelementptr.* addrspace(1)\* @[A-Z].*, i64 0, i64 %[0-9]' kept.ll && fail "with $library an index is not held in its range"
        # in functions of the header and of the library: f32_copysign, f32_round and others
        [ "$(grep -c 'copysign\.f\(32\|64\)' $library.ptx)" -ge 8 ] || fail "with $library a sign is not copied by the instruction"
        # if the assembler unrolled the reduction of large arguments, a quarter fewer threads would
        # fit on the GPU
        grep -q 'llvm\.loop\.unroll\.count", i32 1}' kept.ll && fail "with $library the assembler may unroll what is to stay a loop"
        # the assembler may fuse instructions whose names contain no rounding
        grep '\(mul\|add\|sub\)\.\(f32\|f64\)' $library.ptx && fail "with $library the assembler may fuse products and sums"
        grep -q '@__nvvm_reflect(.*@\.str\.2[,)]' kept.ll && fail "with $library square roots are approximate"
        if installed ptxas; then
            ptxas -arch=sm_90 -o /dev/null $library.ptx || fail "ptxas refuses the PTX with $library"
        fi
        mv kept.ll $library.ll || fail "with $library there was no text to mend"
    elif grep -q "found no clang" err; then
        without "clang: $(head -n 1 err)"
    elif grep -q "is in a library for GPUs" err; then
        without "$library"
    else
        fail "the GPU's part does not compile with $library: $(cat err)"
    fi
done

# A kernel that needs no library is the same with each library.
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

# Compiles the functions of a library for this processor, from the LLVM text that the GPU's compiler
# got. On GPUs conversions saturate, and shifts by more than all bits give 0. The int of a double
# that is no number is -2^31; as an index, it ends the program here, too. The questions of libdevice
# to its compiler are answered as for sm_70: 0, except for the architecture.
run_here() {
    local library=$1 name
    sed -e 's/^target triple.*/target triple = "x86_64-pc-linux-gnu"/' -e '/^target datalayout/d' \
        -e 's/"target-cpu"="[^"]*"/"target-cpu"="haswell"/' -e 's/"target-features"="[^"]*"/"target-features"="+fma,+avx2"/' \
        -e 's/\bconvergent //g' -e 's/addrspace(1) //' -e 's/addrspace(1)\*/*/g' -e 's/ addrspace(1)//g' \
        -e '/^declare.*@llvm\.nvvm/s/#[0-9]*//' -e 's/@llvm\.nvvm\./@gpu./g' \
        -e '/^declare.*@__nvvm_reflect/d' -e 's/= call i32 @__nvvm_reflect(.*@\.str\.1[,)].*/= add i32 0, 700/' \
        -e 's/= call i32 @__nvvm_reflect(.*/= add i32 0, 0/' \
        -e 's/asm "\(r[a-z]*\)\.approx\.ftz\.f32[^(]*(/@gpu.\1.approx.ftz.f(/' -e 's/asm "rsqrt\.approx\.ftz\.f64[^(]*(/@gpu.rsqrt.approx.ftz.d(/' \
        -e 's/asm "sub\.rn\.[ftz.]*32[^(]*(/@gpu.sub.rn.f(/' -e 's/asm "{ \.reg \.pred[^(]*(/@gpu.choose.d(/' \
        -e 's/asm "copysign\.f\([36][24]\)[^(]*(/@gpu.copysign.f\1(/' -e 's/asm "fma\.rn\.f64[^(]*(/@gpu.fma.rn.d(/' \
        -e 's/asm "[^"]*mad\.lo\.cc\.u32   \$0[^"]*", "[^"]*"(/@gpu.wide.fma.i32(/' \
        -e 's/asm "[^"]*sub\.cc\.u32 [^"]*", "[^"]*"(/@gpu.wide.sub.i64(/' \
        -e 's/asm "[^"]*add\.cc\.u32 [^"]*", "[^"]*"(/@gpu.wide.add.i64(/' \
        -e 's/asm "[^"]*{clo,chi}[^"]*", "[^"]*"(/@gpu.wide.fma.i64(/' \
        -e 's/asm "[^"]*{alo,ahi}[^"]*", "[^"]*"(/@gpu.wide.mul.i64(/' \
        -e 's/, !srcloc ![0-9]*//' \
        -e 's/= \(l*sh[lr]\) \(i[36][24]\) \(%[^ ,]*\), \(%[^ ,]*\)/= call \2 @gpu.\1.\2(\2 \3, \2 \4)/' \
        -e 's/fptosi double \([^ ,]*\) to i32/call i32 @gpu.d2i.rz(double \1)/' \
        -e 's/fpto\([su]\)i float \([^ ,]*\) to i\([0-9]*\)/call i\3 @llvm.fpto\1i.sat.i\3.f32(float \2)/' \
        -e 's/fpto\([su]\)i double \([^ ,]*\) to i\([0-9]*\)/call i\3 @llvm.fpto\1i.sat.i\3.f64(double \2)/' \
        -e ':again' -e 's/@gpu\([a-z0-9_]*\)\./@gpu\1_/' -e 't again' "$library.ll" >cpu.ll
    for name in $(grep -o 'llvm\.fpto[su]i\.sat\.i[0-9]*\.f[0-9]*' cpu.ll | sort -u); do
        case $name in
        *.f32) echo "declare ${name:16:3} @$name(float)" ;;
        *.f64) echo "declare ${name:16:3} @$name(double)" ;;
        esac
    done >declared
    for name in 'float @gpu_rcp_approx_ftz_f(float)' 'float @gpu_sub_rn_f(float, float)' \
        'float @gpu_copysign_f32(float, float)' 'double @gpu_copysign_f64(double, double)' \
        'double @gpu_fma_rn_d(double, double, double)' 'double @gpu_rsqrt_approx_ftz_d(double)' 'double @gpu_choose_d(double, double, double, double)' \
        'i32 @gpu_shl_i32(i32, i32)' 'i64 @gpu_shl_i64(i64, i64)' 'i32 @gpu_lshr_i32(i32, i32)' 'i64 @gpu_lshr_i64(i64, i64)' \
        '{ i32, i32 } @gpu_wide_fma_i32(i32, i32, i32)' '{ i64, i64 } @gpu_wide_fma_i64(i64, i64, i64)' \
        '{ i64, i64 } @gpu_wide_mul_i64(i64, i64)' '{ i64, i64 } @gpu_wide_add_i64(i64, i64, i64, i64)' \
        '{ i64, i64 } @gpu_wide_sub_i64(i64, i64, i64, i64)' 'i32 @gpu_d2i_rz(double)'; do
        grep -q "declare ${name%%(*}(" cpu.ll || echo "declare $name"
    done >>declared
    cat declared >>cpu.ll
    clang -O2 -c -x ir -Wno-override-module -o kernels.o cpu.ll &&
        ${CC:-cc} -O1 -frounding-math -c -o instructions.o "$source/tests/kernel/math/instructions.c" &&
        compile_compare direct_$library -DDIRECT kernels.o instructions.o
}
for library in $made; do
    if [ $mpfr = no ]; then
        :
    elif ! clang --version 2>/dev/null | grep -q 'clang version 14' || ! grep -qw fma /proc/cpuinfo; then
        without "clang 14 and a processor of x86-64 with fma: results of $library"
    elif run_here $library; then
        ./direct_$library 1000 || fail "the functions of $library are not within the bounds"
    else
        fail "the GPU's part with $library does not compile for the CPU"
    fi
done
[ "$failures" -eq 0 ]
