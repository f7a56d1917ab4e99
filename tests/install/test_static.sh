#!/usr/bin/env bash
# test_static.sh - a program that is linked with -static, so that it contains the C library, too.
#
# Promise: A program that is linked with -static opens host devices and runs kernels in every placement.
set -u
source=$1
build=$2
. "$source/tests/support/installed.sh"
needs pkg-config
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
printf 'int main(void)\n{\n    return 0;\n}\n' >none.c
"${CC:-cc}" -static none.c -o none 2>/dev/null || {
    echo "skipped: no static C library here"
    exit 77
}
cat >add.c <<'C'
#include <heddle/kernel.h>
HD_KERNEL(add, HD_INOUT(uint32_t, y))
{
    y[hd_thread_x()] += 1;
}
C
cat >program.c <<'C'
#include <heddle.h>
#include <stdio.h>
int main(void)
{
    hd_runtime *runtime;
    hd_lane *lane;
    hd_buffer *buffer;
    hd_module *module;
    hd_kernel *add;
    uint32_t value = 0;
    if (hd_open(NULL, &runtime) || hd_lane_get_default(runtime, 0, &lane) || hd_alloc(lane, 4096, &buffer) ||
        hd_fill(buffer, 0, 7, 4096, NULL) || hd_module_load_file(runtime, "add.hdk", &module) || hd_kernel_get(module, "add", &add)) {
        puts(hd_message());
        return 1;
    }
    hd_arg argument = hd_inout(buffer);
    if (hd_launch(lane, add, (hd_dims){1}, (hd_dims){1}, 0, &argument, 1, NULL) || hd_read(buffer, 0, &value, 4)) {
        puts(hd_message());
        return 1;
    }
    printf("%u\n", value);
    return hd_close(runtime) != HD_OK;
}
C
cmake --install "$build" --prefix "$work/prefix" >/dev/null || fail "the build cannot be installed"
prefix/bin/heddle cc --no-gpu add.c || fail "the kernel does not compile"
"${CC:-cc}" -static -Iprefix/include program.c "$(find prefix -name libheddle.a)" -pthread -ldl -lm -o program 2>err || fail "it is not linked: $(cat err)"
for placement in thread inline process; do
    HEDDLE_DRIVER=host HEDDLE_HOST_DEVICES=2 HEDDLE_CACHE=none HEDDLE_PLACEMENT=$placement ./program >out 2>&1 || fail "$placement: $(cat out)"
    [ "$(cat out)" = 8 ] || fail "$placement: not 8, but: $(cat out)"
done
exit $failed
