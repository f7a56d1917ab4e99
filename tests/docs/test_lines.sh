#!/usr/bin/env bash
# test_lines.sh - the examples that exist in C, C++ and plain CUDA take fewer lines in C and C++
# than in CUDA, and docs/guide/cpp.md gives the figures. The CUDA sources compile if nvcc is
# installed. Small sources with a known number of lines test the counting.
#
# Promise: The examples take fewer lines in C and C++ than in plain CUDA, and the documents give the
# figures.
set -u
source=$1
. "$source/tests/support/installed.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

"$source/tools/count-lines" "$source" >"$work/counts" || fail "some take as many lines as in CUDA: $(cat "$work/counts")"
[ "$(wc -l <"$work/counts")" -eq 3 ] || fail "not three examples: $(cat "$work/counts")"
while read -r name c cpp cuda; do
    grep -qE "^\| \`$name\`.* \| $c \| $cpp \| $cuda \|\$" "$source/docs/guide/cpp.md" || fail "docs/guide/cpp.md has other figures for $name than $c, $cpp, $cuda"
done <"$work/counts"

# lines with code: 3 in C, 2 in C++, 4 in CUDA; 1 in the kernel file
mkdir -p "$work/tree/examples/cpp" "$work/tree/examples/cuda" "$work/tree/examples/kernels"
for name in forum wave pipeline; do
    printf '/* one\n * two */\nint a;\n\nint b; /* three */\n  /* four */ int c;\n' >"$work/tree/examples/$name.c"
    printf '/* one */\nint a;\nint b;\n' >"$work/tree/examples/cpp/$name.cpp"
    printf 'int a;\nint b;\nint c;\nint d;\n' >"$work/tree/examples/cuda/$name.cu"
done
printf 'int k;\n' >"$work/tree/examples/kernels/wave.c"
"$source/tools/count-lines" "$work/tree" >"$work/counts" && fail "an example with as many lines as in CUDA passes"
printf 'forum 3 2 4\nwave 4 3 4\npipeline 3 2 4\n' | cmp -s - "$work/counts" || fail "counts wrongly: $(cat "$work/counts")"
rm "$work/tree/examples/cpp/wave.cpp"
"$source/tools/count-lines" "$work/tree" >/dev/null 2>&1
[ $? -eq 2 ] || fail "an example that is missing"

if installed nvcc; then
    for example in "$source"/examples/cuda/*.cu; do
        [ "${example##*/}" != forum.cu ] || printf '#include <cublas_v2.h>\n' | nvcc -x cu -E -o /dev/null - 2>/dev/null || continue
        nvcc -std=c++17 -c -o "$work/example.o" "$example" >"$work/messages" 2>&1 || fail "$example: $(cat "$work/messages")"
    done
fi
exit $failed
