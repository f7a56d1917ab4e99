#!/usr/bin/env bash
# test_mistakes.sh - makes each mistake of the tables in docs/kernels.md, with each installed
# compiler. A row of a table contains the code: each part between backticks is a line. If no part is
# a kernel, the last part is the body of a kernel.
#
# Promise: `heddle cc` refuses each mistake that docs/kernels.md lists, and prints the messages
# shown there.
# Tier: full.
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
cd "$work" || exit 1
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
export HEDDLE_DRIVER=host LD_LIBRARY_PATH=$build
unset CC CLANG NVCC

# rows N: prints the rows of the Nth table of mistakes as LABEL<tab>PART<tab>...<tab>MESSAGE,
# without the backticks. Without MESSAGE if the last column is a remedy.
rows() {
    awk -v wanted="$1" '
        /^\| mistake \|/ { table++; remedies = /\| remedy \|$/; next }
        /^\|---/ { next }
        table == wanted && /^\| / {
            if (remedies) { sub(/ \|$/, ""); at = match($0, /` \| [^|`]+(`[^`]*`[^|`]*)*$/); $0 = substr($0, 1, at) }
            n = split($0, piece, "`")
            label = piece[1]
            sub(/^\| /, "", label); sub(/ \|.*/, "", label)
            in_label = split($0, cell, " \\| ") > 0 ? gsub(/`/, "`", cell[1]) : 0 # the number of backticks in the first column
            line = cell[1]; gsub(/^\| |`/, "", line)
            for (i = 2 + in_label; i <= n; i += 2) line = line "\t" piece[i]
            print line
        }
        table > wanted { exit }' "$source/docs/kernels.md"
}

# as_written FILE MESSAGE: a line of the file contains the message; dots stand for anything
as_written() {
    while read -r text; do
        if [[ $2 == *...* ]]; then
            [[ $text == *"${2%%...*}"*"${2#*...}"* ]] && return 0
        else
            [[ $text == *"$2"* ]] && return 0
        fi
    done <"$1"
    return 1
}

# make_source PART...: writes k.c
make_source() {
    {
        echo '#include <heddle/kernel.h>'
        if [[ "$*" == *HD_KERNEL\(k* || "$*" == *__global__* || ("$*" == HD_DEVICE* && $# -eq 1) ]] && [[ "$*" != *"(float, x)) { x[0]"* ]]; then
            printf '%s\n' "$@"
        elif [[ "$*" == HD_KERNEL\(k* ]]; then # this defines the same name a second time
            printf 'HD_KERNEL(k, HD_INOUT(float, y)) { %s }\n' "$2"
            printf '%s\n' "$1"
        else
            [ $# -eq 1 ] || printf '%s\n' "${@:1:$#-1}"
            printf 'HD_KERNEL(k, HD_INOUT(float, y)) { %s }\n' "${@: -1}"
        fi
    } >k.c
}

# check_rows TABLE LEAST OPTION...: checks all rows, at least LEAST of them, with the compilers of
# the environment. In a table of remedies the message comes from the compiler, which names the file.
check_rows() {
    count=0
    while IFS=$'\t' read -r -a row; do
        count=$((count + 1))
        message=k.c
        parts=("${row[@]:1}")
        if [ "$1" -gt 2 ]; then
            message=${row[-1]}
            unset 'parts[-1]'
        fi
        make_source "${parts[@]}"
        "$build/heddle" cc "${@:3}" -o k.hdk k.c >/dev/null 2>err && fail "${row[0]}: passes"
        as_written err "$message" || fail "${row[0]} (${CC:-cc} ${NVCC:-}): not '$message' but: $(cat err)"
        [ ! -e k.hdk ] || fail "${row[0]}: there is a result"
    done < <(rows "$1")
    [ "$count" -ge "$2" ] || fail "table $1 has $count rows"
}

found=0
for compiler in gcc clang; do
    installed "$compiler" && found=1 && CC=$compiler check_rows 1 25 --no-gpu && CC=$compiler check_rows 3 5 --no-gpu
done
[ $found -eq 1 ] || { check_rows 1 25 --no-gpu && check_rows 3 5 --no-gpu; }
printf '#include <heddle/kernel.h>\nHD_KERNEL(k, HD_INOUT(float, y)) { y[0] = 1; }\n' >good.c
if "$build/heddle" cc good.c 2>err; then
    check_rows 2 5
    check_rows 4 1
else
    without "clang: $(head -n 1 err)"
fi
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
if [ -n "$nvcc" ]; then
    NVCC=$nvcc check_rows 2 5
    NVCC=$nvcc check_rows 4 1
else
    without nvcc
fi

# messages that programs get at run time
for name in scale:'y[hd_global_x()] *= factor; (void)n;' half:'if (hd_thread_x() < 16) { y[n] = hd_warp_reduce_add_f32(factor); } hd_barrier();' \
    far:'*(volatile float *)(uintptr_t)n = factor; (void)y;'; do
    printf '#include <heddle/kernel.h>\nHD_KERNEL(%s, HD_INOUT(float, y), HD_VALUE(float, factor), HD_VALUE(uint64_t, n)) { %s }\n' \
        "${name%%:*}" "${name#*:}" >"${name%%:*}.c"
    "$build/heddle" cc --no-gpu "${name%%:*}.c" || fail "${name%%:*}.c does not compile"
done
if cc -std=gnu11 -Wall -Wextra -Werror "-I$source/include" -o mistakes "$source/tests/docs/mistakes.c" -L"$build" -lheddle; then
    ./mistakes >got 2>err || fail "mistakes ends with $?: $(cat got err)"
    rows 5 >wanted
    [ "$(wc -l <got)" -eq "$(wc -l <wanted)" ] || fail "$(wc -l <wanted) rows, and $(wc -l <got) messages: $(cat got)"
    while IFS=$'\t' read -r label message <&3 && read -r line <&4; do
        echo "$line" >line
        as_written line "$message" || fail "$label: not '$message' but: $line"
    done 3<wanted 4<got
else
    fail "mistakes.c does not compile"
fi
exit $failed
