#!/usr/bin/env bash
# test_wheel.sh - builds the wheel from the tree, installs it into a new virtual environment of each
# Python, and uses it there: from Python, as the tool, and from C with pkg-config and CMake.
#
# Promise: One wheel serves every Python, and contains a working tool and C library with headers and build files.
# Tier: full.
set -u
source=$1
build=$2
. "$source/tests/python/with.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
PYTHONPATH=$packages/python_tools python3 -s -c 'import scikit_build_core, pip' 2>/dev/null || {
    without "scikit-build-core: for python3"
    exit 77
}
[ ! -x "$(type -P ccache)" ] || export CMAKE_C_COMPILER_LAUNCHER=ccache
PYTHONPATH=$packages/python_tools CMAKE_BUILD_PARALLEL_LEVEL=2 python3 -s -m pip --disable-pip-version-check wheel -q \
    --no-build-isolation --no-deps --wheel-dir "$work/out" "$source" || exit 1
wheel=$(ls "$work"/out/heddle_gpu-*-py3-none-linux_*.whl) || exit 1
unset PYTHONPATH HEDDLE_SHARED_LIBRARY HEDDLE_WORKER

cat >"$work/use.py" <<'END'
import os
import heddle
with heddle.open(placement="process") as runtime:
    assert os.path.dirname(heddle.__file__) in runtime.options()["worker"], runtime.options()["worker"]
    x = heddle.zeros(100, runtime=runtime)
    heddle.builtin(runtime)["hd_fill_u32"](x.buffer, 100, 7, threads=100)
    assert x.buffer.read(nbytes=4) == b"\7\0\0\0"
    assert runtime.peer(0, 1)["verdict"] == heddle.PeerVerdict.USABLE
assert os.path.exists(os.path.join(heddle.include_dir(), "heddle.h"))
END
tried=0
for python in python3 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14; do
    "$python" -c 'import venv, ensurepip' 2>/dev/null || continue
    bin=$work/$python/bin
    "$python" -m venv "$work/$python" || exit 1
    "$bin/pip" --disable-pip-version-check install -q --no-index "$wheel" || fail "$python does not install the wheel"
    "$bin/python" "$work/use.py" || fail "$python does not use the wheel"
    echo "used: $("$bin/python" --version)"
    tried=$((tried + 1))
done
[ $tried -gt 0 ] || {
    without "venv: for python3"
    exit 77
}
[ "$("$bin/python" -m heddle --version)" = "$("$build/heddle" --version)" ] || fail "the tool"
"$bin/heddle" info >/dev/null || fail "heddle info"
! grep -rqF "$source" "${bin%/bin}" --include=*.pc --include=*.cmake || fail "the files for builds name the tree"

cat >"$work/first.c" <<'END'
#include <heddle.h>
int main(void)
{
    hd_runtime *runtime;
    return hd_open(NULL, &runtime) || hd_close(runtime);
}
END
with_pkg_config() {
    local flags
    flags=$(PKG_CONFIG_PATH=$("$bin/python" -m heddle.config pkgconfig) pkg-config --cflags --libs heddle) || return 1
    # shellcheck disable=SC2086 # the flags are words
    ${CC:-cc} -o "$work/first" "$work/first.c" $flags && "$work/first"
}
if installed pkg-config; then
    with_pkg_config || fail "pkg-config"
fi
mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(first C)
find_package(Heddle REQUIRED)
add_executable(first ../first.c)
target_link_libraries(first heddle::heddle)
END
with_cmake() {
    cmake -S "$work/project" -B "$work/project/build" "-DHeddle_DIR=$("$bin/python" -m heddle.config cmake)" >/dev/null &&
        cmake --build "$work/project/build" >/dev/null && "$work/project/build/first"
}
with_cmake || fail "CMake"
exit $failed
