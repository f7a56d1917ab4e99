#!/usr/bin/env bash
# test_examples.sh - the blocks of C, C++ and CUDA in README.md and the guides of docs compile
# without a warning, and run on host devices without a failing call. A block that includes
# heddle/kernel.h is kernel source. A block with main is a program. A block that begins with
# "static" is a function for the next blocks. All others are fragments; prelude.h declares the names
# that they lack. A line of dots stands for code left out. Blocks of CUDA C++ are compiled if nvcc
# is installed.
#
# Promise: Every example in README.md and the guides compiles without a warning, and those in C run.
set -u
source=$1
build=$2
. "$source/tests/support/installed.sh"
[ -x "$build/heddle" ] || {
    echo "skipped: $build/heddle is not built"
    exit 77
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
export HEDDLE_DRIVER=host HEDDLE_HOST_DEVICES=2 LD_LIBRARY_PATH=$build
flags=(-std=gnu11 -Wall -Wextra -Wno-unused -Werror "-I$source/include" "-I$source/tests/docs")

# compile OUT FILE
compile() {
    "${CC:-cc}" "${flags[@]}" -o "$1" "$2" -L"$build" -lheddle >"$work/messages" 2>&1
}

# writes DOCUMENT-LINE.c for each block
# docs/guide/first-program.md is tested by test_first_program.sh, docs/guide/mpi.md by tests/mpi/test_guide.sh
for document in "$source"/README.md "$source"/docs/guide/*.md "$source"/docs/kernels.md "$source"/docs/from-cuda.md; do
    [ "${document##*/}" != first-program.md ] && [ "${document##*/}" != mpi.md ] || continue
    awk -v at="$work/$(basename "$document" .md)" '
        /^```c$/ { file = sprintf("%s-%04d.c", at, FNR + 1); next }
        /^```cuda$/ { file = sprintf("%s-%04d.cu", at, FNR + 1); next }
        /^```/ { file = "" }
        file { if ($0 ~ /^ *\.\.\.( |$)/) sub(/\.\.\./, ""); print >file }' "$document"
done
[ "$(find "$work" -name '*.c' | wc -l)" -ge 30 ] && [ "$(find "$work" -name '*.cu' | wc -l)" -ge 4 ] || fail "found too few blocks"

# True if the block itself declares the name.
declares() {
    grep -qE "^ *(const )?(hd_[a-z0-9_]+|uint64_t|size_t|struct [a-z]+|void|float) ([^;(=]*[ *])?$2(\[\])?( =|;|,)" "$1"
}

# declaration NAME TEXT: adds the text unless the block declares the name
declaration() {
    declares "$block" "$1" || echo "    $2"
}

kernels=()
clang=no
if installed clang; then
    clang --print-targets 2>/dev/null | grep -q nvptx64 && clang=yes || without "clang: with code for NVIDIA's GPUs"
fi
for block in "$work"/*-*.c; do
    grep -q 'include <heddle/kernel.h>' "$block" || continue
    name=$(sed -nE 's/^HD_KERNEL(_BOUNDS)?\(([a-z_]+),.*/\2/p' "$block")
    cp "$block" "$work/$name.c"
    "$build/heddle" cc --no-gpu -Wall -Wextra -Werror -o "$work/$name.hdk" "$work/$name.c" 2>"$work/messages" ||
        fail "$(basename "$block"): $(cat "$work/messages")"
    if [ $clang = yes ]; then
        "$build/heddle" cc --no-cpu -o "$work/gpu.hdk" "$work/$name.c" 2>"$work/messages" ||
            fail "$(basename "$block"), for GPUs: $(cat "$work/messages")"
    fi
    kernels+=("$name")
done
"$build/heddle" cc --no-gpu --embed waves -o "$work/waves.c" "$work/scale.c" || fail "the kernel scale is not embedded"
[ "${kernels[*]}" = "block_sum scale apply add_rows sum reverse squares smooth histogram sum_by_last total weigh normalise axpy invert" ] ||
    fail "the kernels are ${kernels[*]}"
"$build/heddle" cc --no-gpu -o "$work/kernels.hdk" "$work/scale.c" "$work/smooth.c" || fail "two sources make no file"
if nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null); then
    for block in "$work"/*.cu; do
        "$nvcc" -Werror all-warnings -c -o "$work/cuda.o" "$block" >"$work/messages" 2>&1 || fail "$(basename "$block"): $(cat "$work/messages")"
    done
else
    without nvcc
fi

: >"$work/functions.h"
for block in "$work"/*-*.c; do
    name=$(basename "$block" .c)
    if grep -q 'include <heddle/kernel.h>' "$block"; then
        continue
    elif grep -q '^int main(' "$block"; then
        compile "$work/$name" "$block" || fail "$name: $(cat "$work/messages")"
        (cd "$work" && "./$name") >"$work/out" 2>&1 || fail "$name ends with $?: $(cat "$work/out")"
        continue
    elif head -n 1 "$block" | grep -q '^static '; then
        cat "$block" >>"$work/functions.h"
        continue
    fi
    opens=1
    grep -q 'hd_open(' "$block" && opens=0
    {
        echo '#include "prelude.h"'
        cat "$work/functions.h"
        grep -q 'waves_size' "$block" && echo '#include "waves.c"'
        echo 'int main(void) {'
        echo "    docs_begin(\"$work/scale.hdk\", $opens);"
        declaration runtime 'hd_runtime *runtime = docs_runtime;'
        if [ $opens -eq 1 ]; then
            echo '    const size_t n = 1000, bytes = 4 * n, image_bytes = docs_image_bytes;'
            declaration lane 'hd_lane *lane = docs_lane(0);'
            declaration image 'void *image = docs_image;'
            declaration y 'hd_buffer *y = docs_buffer(bytes);'
            declaration pixels 'hd_buffer *pixels = docs_buffer(1000 * 700 * 4);'
            declaration state 'hd_buffer *state;'
            declaration cache 'void *cache = NULL;'
            declaration c 'hd_tensor a = docs_tensor(), b = docs_tensor(), c = docs_tensor();'
        fi
        echo "#line $((10#${name##*-})) \"$name\""
        cat "$block"
        echo '    return docs_end(runtime); }'
    } >"$work/program.c"
    compile "$work/program" "$work/program.c" || {
        fail "$name: $(cat "$work/messages")"
        continue
    }
    (cd "$work" && ./program) >"$work/out" 2>&1 || fail "$name: $(cat "$work/out")"
done

# programs of C++
while IFS=: read -r page block _; do
    installed "${CXX:-c++}" || continue
    awk -v first="$block" 'FNR > first && /^```/ { exit } FNR > first' "$page" >"$work/plus.cpp"
    "${CXX:-c++}" -std=c++17 -Wall -Wextra -Wconversion -Wpedantic -Werror "-I$source/include" -o "$work/plus" "$work/plus.cpp" -L"$build" -lheddle \
        >"$work/messages" 2>&1 || fail "$page:$block: $(cat "$work/messages")"
    "$work/plus" >"$work/out" 2>&1 || fail "$page:$block ends with $?: $(cat "$work/out")"
done < <(grep -Hn '^```cpp$' "$source"/docs/guide/*.md | grep -v "/mpi\.md:") # tests/mpi/classes.cpp is like that of mpi.md

compile "$work/sums" "$source/tests/docs/sum.c" || fail "sum.c: $(cat "$work/messages")"
for name in sum total block_sum; do
    "$work/sums" "$work/$name.hdk" $name || fail "the kernel $name"
done
exit $failed
