#!/bin/sh
# test_print.sh - printf and assert in kernel source: the output on a host device, its place, and
# the report of an assertion. The test compiles code for GPUs if a suitable clang is installed.
#
# Promise: The output of kernels reaches the program's standard output in whole calls, also from
# worker processes, and assertions name their place.
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
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

cat >print.c <<'END'
#include <stdio.h>
#include <assert.h>
#include <heddle/kernel.h>
HD_DEVICE float checked(HD_SELF, float x)
{
    assert(x < 1000);
    return x;
}
HD_KERNEL(print, HD_IN(float, x), HD_VALUE(uint32_t, n))
{
    uint32_t i = (uint32_t)hd_global_x();
    float y = checked(hd_self, x[i]);
    printf("%s %u: %.2f %lld %c|\n", "thread", i, y, -(long long)i << 40, (char)('a' + i % 26));
    if (i == 0) {
        hd_printf("once\n");
    }
    hd_assert(i < n);
}
END
cat >run.c <<'END'
#include <heddle.h>
#include <stdio.h>
#include <stdlib.h>
#define CHECK(e) if ((e) != HD_OK) { fprintf(stderr, "%s\n", hd_message()); return 1; }
int main(int argc, char **argv)
{
    static char image[1 << 20];
    static float x[128] = {2.5f};
    FILE *f = argc > 3 ? fopen("print.hdk", "rb") : NULL;
    if (f == NULL) return 2;
    size_t bytes = fread(image, 1, sizeof image, f);
    fclose(f);
    hd_options options = {sizeof options, argv[1]};
    hd_runtime *rt;
    hd_module *m;
    hd_kernel *k;
    hd_buffer *b;
    hd_lane *lane;
    printf("before\n");
    x[127] = (float)atof(argv[3]);
    CHECK(hd_open(&options, &rt));
    CHECK(hd_lane_get_default(rt, 0, &lane));
    CHECK(hd_module_load(rt, image, bytes, &m));
    CHECK(hd_kernel_get(m, "print", &k));
    CHECK(hd_alloc(lane, sizeof x, &b));
    CHECK(hd_write(b, 0, x, sizeof x));
    fflush(stdout);
    hd_arg args[] = {hd_in(b), hd_u32((uint32_t)atoi(argv[2]))};
    hd_dims grid = {4, 1, 1}, block = {32, 1, 1};
    CHECK(hd_launch(lane, k, grid, block, 0, args, 2, NULL));
    CHECK(hd_lane_wait(lane, HD_FOREVER));
    printf("after\n");
    hd_close(rt);
    return 0;
}
END
"$heddle" cc --no-gpu print.c || fail "print.c does not compile"
# shellcheck disable=SC2086
${CC:-cc} -std=c11 -I"$source/include" -o run run.c -L"$build" -lheddle -Wl,-rpath,"$build" || fail "run.c does not compile"

{
    echo before
    echo once
    echo after
    i=0
    while [ $i -lt 128 ]; do
        y=0.00
        [ $i -ne 0 ] || y=2.50
        letter=$(printf '%s' abcdefghijklmnopqrstuvwxyz | cut -c$((i % 26 + 1)))
        echo "thread $i: $y $((-(i << 40))) $letter|"
        i=$((i + 1))
    done
} | sort >expected
driver=${HEDDLE_DRIVER:-host} # with nvidia, the driver chooses when to write, and writes the assertion to standard error
if [ "$driver" = nvidia ]; then
    "$heddle" cc print.c || fail "print.c does not compile for GPUs"
fi
for placement in thread inline process; do
    settings="driver=$driver placement=$placement"
    ./run "$settings" 128 0 >out 2>err || fail "$placement: $(cat err)"
    sort out | cmp -s - expected || fail "$placement: printed is not what the kernel prints: $(diff out expected | head -5)"
    [ "$driver" != host ] || { [ "$(head -1 out)" = before ] && [ "$(tail -1 out)" = after ]; } ||
        fail "$placement: what the kernel prints is not between what the program prints"
    ./run "$settings" 127 0 >out 2>err && fail "$placement: the assertion holds"
    if [ "$driver" != host ]; then
        grep -qF "CUDA_ERROR_ASSERT: the driver wrote the assertion, its block and thread to standard error" err &&
            grep -q 'print.c:17: .*print.*block: \[3,0,0\], thread: \[31,0,0\] Assertion `i < n` failed' err ||
            fail "$placement: the assertion's message is $(cat err)"
        continue
    fi
    grep -qF "kernel 'print', block (3, 0, 0), thread (31, 0, 0): assertion 'i < n' failed at print.c:17" err ||
        fail "$placement: the assertion's message is $(cat err)"
    ./run "$settings" 128 1000 >out 2>err && fail "$placement: the helper's assertion holds"
    grep -qF "thread (31, 0, 0): assertion 'x < 1000' failed at print.c:6" err ||
        fail "$placement: the helper's message is $(cat err)"
done
"$heddle" cc --no-gpu -DNDEBUG print.c && ./run "driver=host" 0 2000 >out 2>err || fail "NDEBUG: $(cat err)"

# code for GPUs calls two functions of the driver, and no others
if "$heddle" cc --emit-ptx print.ptx -o gpu.hdk print.c 2>err; then
    [ "$(grep -c '\.extern \.func' print.ptx)" -eq 2 ] || fail "external functions: $(grep '\.extern' print.ptx)"
    grep -q 'vprintf' print.ptx || fail "there is no vprintf"
    grep -q '__assertfail' print.ptx || fail "there is no __assertfail"
else
    grep -q 'found no clang' err || fail "the GPU's part: $(cat err)"
    without clang
fi
[ $failures -eq 0 ] && echo "test_print: ok"
exit $((failures != 0))
