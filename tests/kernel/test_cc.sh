#!/bin/sh
# test_cc.sh - `heddle cc` compiles and packs kernels, which run on a host device; it explains
# errors, and leaves nothing behind. The test covers code for GPUs if a suitable clang is installed.
#
# Promise: `heddle cc` makes kernel files that run, explains every error, and leaves no temporary file.
set -u
source=$1
build=$2
heddle=$build/heddle
[ -x "$heddle" ] || {
    echo "skipped: $heddle is not built"
    exit 77
}
. "$source/tests/kernel/cc_support.sh"

cat >scale.c <<'END'
#include <heddle/kernel.h>
#ifndef FACTOR
#define FACTOR 2.0f
#endif
struct pair {
    float a;
    int32_t b;
};
HD_DEVICE float twice(HD_SELF, float x)
{
    return hd_thread_x() < hd_block_dim_x() ? FACTOR * x : 0;
}
HD_KERNEL_BOUNDS(scale, 64, HD_INOUT(float, y), HD_VALUE(struct pair, p), HD_VALUE(uint32_t, n))
{
    HD_SHARED float tile[64];
    uint64_t i = hd_global_x();
    tile[hd_thread_x()] = i < n ? y[i] : 0;
    hd_barrier();
    if (i < n) {
        y[i] = twice(hd_self, tile[hd_thread_x()]) + p.a + (float)p.b;
    }
}
END

expect 0 "" "$heddle" cc --no-gpu scale.c
[ -s scale.hdk ] || fail "there is no scale.hdk"
expect 0 "" "$heddle" cc --no-gpu -O1 -DFACTOR=3.0f -I . -o three.hdk scale.c

# A program that loads the kernel file and runs its kernels.
cat >run.c <<'END'
#include <heddle.h>
#include <stdio.h>
#include <stdlib.h>
#define CHECK(e) if ((e) != HD_OK) { printf("%s: %s\n", #e, hd_message()); return 1; }
int main(int argc, char **argv)
{
    static char image[1 << 20];
    FILE *f = argc > 2 ? fopen(argv[1], "rb") : NULL;
    if (f == NULL) return 1;
    size_t bytes = fread(image, 1, sizeof image, f);
    fclose(f);
    float y[100];
    struct { float a; int b; } p = {0.5f, 1};
    for (int i = 0; i < 100; i++) y[i] = (float)i;
    hd_options options = {sizeof options, "driver=host"};
    hd_runtime *rt;
    hd_module *m;
    hd_kernel *k;
    hd_buffer *b;
    CHECK(hd_open(&options, &rt));
    hd_lane *lane;
    CHECK(hd_lane_get_default(rt, 0, &lane));
    CHECK(hd_module_load(rt, image, bytes, &m));
    CHECK(hd_kernel_get(m, "scale", &k));
    CHECK(hd_alloc(lane, sizeof y, &b));
    CHECK(hd_write(b, 0, y, sizeof y));
    hd_arg args[] = {hd_inout(b), hd_bytes(&p, sizeof p), hd_u32(100)};
    hd_dims grid = {2, 1, 1}, block = {64, 1, 1};
    CHECK(hd_launch(lane, k, grid, block, 0, args, 3, NULL));
    CHECK(hd_read(b, 0, y, sizeof y));
    for (int i = 0; i < 100; i++) {
        if (y[i] != (float)atof(argv[2]) * (float)i + 1.5f) { printf("y[%d] is %g\n", i, y[i]); return 1; }
    }
    hd_close(rt);
    return 0;
}
END
# shellcheck disable=SC2086
if ${CC:-cc} -std=c11 -I"$source/include" -o run run.c -L"$build" -lheddle -Wl,-rpath,"$build"; then
    ./run scale.hdk 2 || fail "scale.hdk does not run"
    ./run three.hdk 3 || fail "three.hdk does not run"
else
    fail "the program that runs kernel files does not compile"
fi

# Errors are explained, and an older result stays.
cp scale.hdk before.hdk
printf '#include <heddle/kernel.h>\nHD_KERNEL(k, HD_OUT(int, y)) { y[0] = 1 }\n' >broken.c
expect 1 "failed for the CPU" "$heddle" cc --no-gpu -o scale.hdk broken.c
cmp -s scale.hdk before.hdk || fail "a failure changed the result of before"
echo 'int x;' >none.c
expect 1 "there is no kernel" "$heddle" cc --no-gpu none.c
expect 1 "No such file" "$heddle" cc --no-gpu missing.c
expect 1 "No such file" "$heddle" cc --no-gpu -o no/such/directory.hdk scale.c
expect 1 "cannot run no-such-compiler" env CC=no-such-compiler "$heddle" cc --no-gpu scale.c
expect 1 "has no heddle/kernel.h" env HEDDLE_INCLUDE_DIR=/nonexistent "$heddle" cc --no-gpu scale.c
expect 1 "does not compile for NVIDIA GPUs" env CLANG=false "$heddle" cc scale.c
expect 2 "no source file" "$heddle" cc
expect 2 "unknown option" "$heddle" cc --no-such-option scale.c
expect 2 "needs a value" "$heddle" cc scale.c -o
expect 2 "--ptx needs a value" "$heddle" cc scale.c --ptx
expect 2 "leaves nothing" "$heddle" cc --no-gpu --no-cpu scale.c
expect 2 "the levels are" "$heddle" cc -O9 scale.c

# An output that is a source is refused before anything is written.
cp scale.c kept.c && ln -s kept.c link.c || exit 1
expect 1 "is the file of the input" "$heddle" cc --no-gpu kept.c -o link.c
expect 1 "is the file of the input" "$heddle" cc --no-gpu kept.c --depfile kept.c
expect 1 "is the file of the input" "$heddle" cc --no-gpu kept.c --embed kept
cmp -s scale.c kept.c || fail "a refused output changes the source"
rm kept.c link.c

# Messages of compilers pass through, and those of Heddle name file and line.
# mistake TEXT OPTIONS... <source: the command must refuse the source with TEXT, and write no file
mistake() {
    text=$1
    shift
    cat >mistake.c
    expect 1 "$text" "$heddle" cc "$@" -o mistake.hdk mistake.c
    [ ! -e mistake.hdk ] || fail "there is a mistake.hdk for '$text'"
}
mistakes() {
    mistake "there is no kernel" --no-gpu <<'END'
#include <heddle/kernel.h>
END
    mistake "kernel k: a parameter is HD_IN, HD_OUT or HD_INOUT(type, name), or HD_VALUE(type, name), not: float *y" --no-gpu <<'END'
#include <heddle/kernel.h>
HD_KERNEL(good, HD_IN(float, x)) { (void)x; }
HD_KERNEL(k, float *y, int n)
{
    y[0] = n;
}
END
    mistake "kernel k: a parameter is" --no-gpu <<'END'
#include <heddle/kernel.h>
HD_KERNEL(k, void) { }
END
    mistake "kernel k: more than 32 parameters" --no-gpu <<END
#include <heddle/kernel.h>
HD_KERNEL(k$(seq -f ', HD_VALUE(int, p%g)' -s '' 33)) { }
END
    printf 'HD_KERNEL(k, int *p) { *p = 1; }\n' >inner.h
    mistake "kernel k: a parameter is" --no-gpu <<'END'
#include <heddle/kernel.h>
#include "inner.h"
END
    mistake "elsewhere" --no-gpu <<'END'
#include <heddle/kernel.h>
float elsewhere(float x);
HD_KERNEL(k, HD_INOUT(float, y))
{
    y[0] = elsewhere(y[0]);
}
END
    mistake "hd_self" --no-gpu <<'END'
#include <heddle/kernel.h>
HD_DEVICE float first(const float *x)
{
    return hd_thread_x() == 0 ? x[hd_global_x()] : 0;
}
HD_KERNEL(k, HD_INOUT(float, y)) { y[0] = first(y); }
END
}
mistakes
rm -f mistake.c
for compiler in gcc clang; do
    if installed "$compiler"; then
        (
            CC=$compiler
            export CC
            failures=0
            mistakes
            exit $failures
        ) || fail "with $compiler"
    fi
done

# Functions of the C library work on the CPU. The C compiler provides debugging and sanitizers.
cat >root.c <<'END'
#include <heddle/kernel.h>
#include <math.h>
struct pair {
    float a;
    int32_t b;
};
HD_KERNEL(scale, HD_INOUT(float, y), HD_VALUE(struct pair, p), HD_VALUE(uint32_t, n))
{
    uint64_t i = hd_global_x();
    if (i < n) {
        y[i] = 2 * sqrtf(y[i] * y[i]) + p.a + (float)p.b;
#ifndef NO_LIBRARY
        y[i] *= expf(0 * y[i]);
#endif
    }
}
END
expect 0 "" "$heddle" cc --no-gpu root.c
expect 0 "-g -fno-omit-frame-pointer" "$heddle" cc --no-gpu --verbose -g -fno-omit-frame-pointer -o three.hdk root.c
./run root.hdk 2 || fail "mathematics does not run on the CPU"
./run three.hdk 2 || fail "what is compiled for a debugger does not run"
if echo 'int main(void) { return 0; }' | ${CC:-cc} -fsanitize=undefined -x c -o sanitized - 2>/dev/null; then
    expect 0 "" "$heddle" cc --no-gpu -fsanitize=undefined -o three.hdk root.c
    ./run three.hdk 2 || fail "what is compiled with a sanitizer does not run"
fi

[ ! -e none.hdk ] && [ ! -e broken.hdk ] && [ ! -e missing.hdk ] || fail "a failure made a kernel file"
"$heddle" cc --help | grep -q -- --emit-ptx || fail "--help says nothing"

# The part for GPUs.
if "$heddle" cc -o both.hdk --emit-ptx scale.ptx scale.c 2>err; then
    grep -q '\.visible \.entry scale(' scale.ptx || fail "there is no kernel in the PTX"
    ./run both.hdk 2 || fail "both.hdk does not run"
    expect 0 "" "$heddle" cc --ptx scale.ptx -o given.hdk scale.c
    cmp -s both.hdk given.hdk || fail "PTX that is given makes another file than PTX that is compiled"
    expect 0 "" "$heddle" cc --no-cpu -o gpu.hdk scale.c
    ./run gpu.hdk 2 >/dev/null && fail "a file without code for the CPU runs on it"
    sed 's/u32 scale_param_2/u64 scale_param_2/' scale.ptx >other.ptx
    expect 1 "parameter n is 4 bytes" "$heddle" cc --ptx other.ptx -o given.hdk scale.c
    sed 's/^.visible .entry/.extern .func (.param .b32 func_retval0) vprintf (.param .b64 a, .param .b64 b);\n&/' scale.ptx >other.ptx
    expect 0 "" "$heddle" cc --ptx other.ptx -o given.hdk scale.c
    sed 's/^.visible .entry/.extern .func (.param .b32 func_retval0) tanf\n(\n .param .b32 tanf_param_0\n)\n;\n&/' scale.ptx >other.ptx
    expect 1 "scale.c: GPUs have no function 'tanf'" "$heddle" cc --ptx other.ptx -o given.hdk scale.c
    mistake expf <<'END'
#include <heddle/kernel.h>
HD_KERNEL(k, HD_INOUT(float, y)) { y[0] = __builtin_expf(y[0]); }
END
    mistake erff <<'END'
#include <heddle/kernel.h>
HD_KERNEL(k, HD_INOUT(float, y))
{
    y[0] = __builtin_erff(y[0]);
}
END
    expect 0 "" "$heddle" cc --math none root.c -DNO_LIBRARY
    mistake "atof" <<'END'
#include <heddle/kernel.h>
#include <stdlib.h>
HD_KERNEL(k, HD_INOUT(float, y)) { y[0] = (float)atof("1"); }
END
    mistake "mistake.c:3: 'erff' is in a library for GPUs: install libclc" --math none <<'END'
#include <heddle/kernel.h>
#include <math.h>
HD_KERNEL(k, HD_INOUT(float, y)) { y[0] = erff(y[0]); }
END
    mistake "--math no/such.bc: No such file" --math no/such.bc <<'END'
#include <heddle/kernel.h>
HD_KERNEL(k, HD_INOUT(float, y)) { y[0] = erff(y[0]); }
END
    mistake "total" <<'END'
#include <heddle/kernel.h>
static float total;
HD_KERNEL(k, HD_INOUT(float, y)) {
    y[0] = total;
}
END
    mistake "helper" <<'END'
#include <heddle/kernel.h>
static float helper(float x) { return x; }
HD_KERNEL(k, HD_INOUT(float, y)) { y[0] = helper(y[0]); }
END
else
    grep -q "found no clang" err || fail "no message about clang: $(cat err)"
    without "clang: $(head -n 1 err)"
fi
[ -z "$(find . -name '*.??????' -newer run.c | grep -v hdk$)" ] || fail "temporary files are left: $(ls)"
[ "$failures" -eq 0 ]
