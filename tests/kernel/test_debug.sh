#!/bin/sh
# test_debug.sh - kernels on host devices in a debugger and under a sanitizer.
#
# A debugger stops in a kernel by the function's name and by a line, in the placements inline and
# thread. If a kernel reads beyond its array, the address sanitizer reports the line.
#
# Promise: A debugger stops in kernels of host devices, and a sanitizer names the line of a kernel's overrun.
# Tier: full.
set -u
source=$1
build=$2
. "$source/tests/support/installed.sh"
heddle=$build/heddle
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
done=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

cat >kernel.c <<'END'
#include <heddle/kernel.h>
HD_KERNEL(overrun, HD_INOUT(float, y), HD_VALUE(int, at))
{
    float four[4] = {1, 2, 3, 4};
    volatile float *p = four;
    float found = p[at];
    y[0] = found;
}
END
cat >run.c <<'END'
#include <heddle.h>
#include <stdio.h>
#include <stdlib.h>
#define NEED(e) if ((e) != HD_OK) { printf("%s\n", hd_message()); return 1; }
int main(int argc, char **argv)
{
    hd_runtime *runtime;
    hd_lane *lane;
    hd_buffer *buffer;
    hd_module *module;
    hd_kernel *kernel;
    float y = 1;
    if (argc < 3) return 1;
    hd_options options = {sizeof options, "driver=host host_devices=1"};
    NEED(hd_open(&options, &runtime));
    NEED(hd_lane_get_default(runtime, 0, &lane));
    NEED(hd_alloc(lane, sizeof y, &buffer));
    NEED(hd_module_load_file(runtime, argv[1], &module));
    NEED(hd_kernel_get(module, "overrun", &kernel));
    hd_arg args[] = {hd_inout(buffer), hd_i32(atoi(argv[2]))};
    hd_dims one = {1, 1, 1};
    NEED(hd_launch(lane, kernel, one, one, 0, args, 2, NULL));
    NEED(hd_read(buffer, 0, &y, sizeof y));
    printf("%g\n", (double)y);
    return hd_close(runtime) != HD_OK;
}
END

# stops WHERE: gdb stops at this place in both placements, and finds the kernel's arguments
stops() {
    for placement in inline thread; do
        HEDDLE_PLACEMENT=$placement timeout 120 gdb -q -batch -nx -ex "set debuginfod enabled off" -ex "set breakpoint pending on" -ex "break $1" -ex run \
            -ex "print at" -ex backtrace -ex kill --args ./run kernel.hdk 2 >out 2>&1
        grep -q 'hit Breakpoint 1, overrun_hd_body' out && grep -q '= 2$' out && grep -q 'kernel\.c:' out ||
            fail "gdb does not stop at $1, placement $placement: $(cat out)"
    done
}
# A kernel library with a sanitizer does not work with a program without this sanitizer.
if ${CC:-cc} -std=c11 -I"$source/include" -o run run.c -L"$build" -lheddle -Wl,-rpath,"$build" 2>/dev/null &&
    "$heddle" cc --no-gpu -g -O0 kernel.c && [ "$(./run kernel.hdk 2)" = 3 ]; then
    if ! installed gdb; then
        :
    elif gdb -q -batch -nx -ex run --args true 2>&1 | grep -q 'exited normally'; then
        stops overrun_hd_body
        stops kernel.c:6
        done=1
    else
        without "gdb: one that may trace a process"
    fi
    if ${CC:-cc} -std=c11 -g -fsanitize=address -I"$source/include" -o sanitized run.c -L"$build" -lheddle -Wl,-rpath,"$build" 2>/dev/null; then
        "$heddle" cc --no-gpu -g -fsanitize=address -o sanitized.hdk kernel.c || fail "it does not compile with -fsanitize=address"
        for placement in inline thread; do
            [ "$(HEDDLE_PLACEMENT=$placement ASAN_OPTIONS=detect_leaks=0 ./sanitized sanitized.hdk 2)" = 3 ] || fail "a good kernel fails"
            HEDDLE_PLACEMENT=$placement ASAN_OPTIONS=detect_leaks=0 ./sanitized sanitized.hdk 4 >out 2>&1 && fail "an overrun passes"
            grep -q 'stack-buffer-overflow' out && grep -q 'kernel\.c:6' out || fail "the overrun is not reported with its line: $(cat out)"
        done
        # a function without a definition is still refused, but not a function of the sanitizer
        printf '#include <heddle/kernel.h>\nint elsewhere(int);\nHD_KERNEL(k, HD_OUT(int, y)) { y[0] = elsewhere(1); }\n' >missing.c
        "$heddle" cc --no-gpu -fsanitize=address missing.c 2>err && fail "what is missing passes under a sanitizer"
        grep -q "elsewhere" err || fail "what is missing is not named: $(cat err)"
        done=1
    fi
fi
[ $done -eq 1 ] || exit 77
[ $failures -eq 0 ]
