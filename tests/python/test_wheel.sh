#!/usr/bin/env bash
# test_wheel.sh - builds the wheel from the tree, installs it into a new virtual environment of each
# Python, and uses it there: from Python with NumPy and mpi4py, as the tool, and from C with pkg-config and CMake.
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
wheel=$("$source/tools/make-wheel" "$work/out")
case $? in
0) ;;
77)
    without "scikit-build-core or auditwheel: for python3"
    exit 77
    ;;
*) exit 1 ;;
esac
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
cat >"$work/exchange.py" <<'END'
import heddle
import numpy as np
from mpi4py import MPI

with heddle.open() as runtime:
    sent, received = (heddle.zeros(1000, "f32", kind="pinned", runtime=runtime) for _ in range(2))
    sent[...] = 3
    with heddle.claim(sent, write=[received]) as claim:
        MPI.COMM_SELF.Sendrecv(claim.numpy(sent), 0, recvbuf=claim.numpy(received), source=0)
    assert (received.numpy() == 3).all()
    shared = np.from_dlpack(received)
    assert shared.sum() == 3000
    del shared
END
# mpi4py looks for MPICH under the common name of its interface, which Debian's package lacks
mkdir "$work/lib"
mpich=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | awk '$1 == "libmpich.so.12" { print $NF; exit }')
[ -z "$mpich" ] || ln -s "$mpich" "$work/lib/libmpi.so.12"

# use VERSION PYTHON: installs the wheel into a new environment of this Python, and runs programs there
use() {
    local consumers=$packages/python$1
    bin=$work/python$1/bin
    "$2" -m venv "$work/python$1" || exit 1
    "$bin/pip" --disable-pip-version-check install -q --no-index "$wheel" || fail "Python $1 does not install the wheel"
    "$bin/python" "$work/use.py" || fail "Python $1 does not use the wheel"
    if [ -d "$consumers/numpy" ]; then
        PYTHONPATH=$consumers "$bin/python" "$source/tests/python/graphs.py" 10 || fail "Python $1: random graphs"
        [ -z "$mpich" ] || PYTHONPATH=$consumers LD_LIBRARY_PATH=$work/lib MPI4PY_MPIABI=mpich "$bin/python" "$work/exchange.py" ||
            fail "Python $1: mpi4py"
    else
        without "NumPy and mpi4py: for Python $1"
    fi
    echo "used: $("$bin/python" --version)"
}
while read -r version python; do
    use "$version" "$python" </dev/null
    tried=1
done < <("$source/tools/install-deps" --pythons)
[ -n "${tried:-}" ] || {
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
