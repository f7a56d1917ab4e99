#!/usr/bin/env bash
# test_versions.sh - a program works with a library that is older or newer than its headers.
#
# Promise: A program works with a library older or newer than its headers; a field that the library lacks is refused
# when set.
#
# The later release is this one, but with more fields at the end of every structure that may grow
# (grow.awk). build/tests/later contains its headers and library. The library refuses values in
# fields that it does not know; everything else is the same.
set -u
source=$1
build=$2
later=$build/tests/later
[ -e "$later/libheddle.so" ] || {
    echo "skipped: $later/libheddle.so is not built"
    exit 77
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
export HEDDLE_DRIVER=host HEDDLE_WORKER=$build/heddle-worker HEDDLE_PROBE=$build/heddle-probe

flags=(-std=gnu11 -g -Wall -Wextra -Werror)
"${CC:-cc}" "${flags[@]}" -I"$source/include" -o "$work/now" "$source/tests/abi/program.c" -L"$build" -lheddle || exit 1
"${CC:-cc}" "${flags[@]}" -I"$later/include" -DLATER -o "$work/later" "$source/tests/abi/program.c" -L"$build" -lheddle || exit 1

# try PROGRAM LIBRARY PLACEMENT: prints the output of the program with the library. Lines with LATER
# go to $work/refused.
try() {
    HEDDLE_PLACEMENT=$3 LD_LIBRARY_PATH=$2 "$work/$1" >"$work/out" 2>"$work/err" || {
        echo "the program of $1 with the library in $2, placement $3, fails: $(cat "$work/out" "$work/err")"
        failed=1
    }
    sed -n 's/^LATER: .*: //p' "$work/out" >"$work/refused"
    sed -i '/^LATER/d' "$work/out"
}

for placement in thread process; do
    try now "$build" $placement
    cp "$work/out" "$work/expected"
    [ "$(wc -l <"$work/expected")" -ge 13 ] || { echo "the program prints too little: $(cat "$work/expected")"; failed=1; }
    for pair in "now $later" "later $build" "later $later"; do
        read -r program library <<<"$pair"
        try "$program" "$library" $placement
        diff "$work/expected" "$work/out" || {
            echo "the program of $program with the library in $library prints something else"
            failed=1
        }
        case $program$library in
        "later$build") wanted='refused refused refused refused' ;;
        "later$later") wanted='taken taken taken taken' ;;
        *) wanted='' ;;
        esac
        [ "$(paste -sd' ' "$work/refused")" = "$wanted" ] || {
            echo "new fields, program of $program, library in $library: $(cat "$work/refused")"
            failed=1
        }
    done
done
exit $failed
