#!/usr/bin/env bash
# test_counts.sh - tools/count-instructions accepts differences of up to 3 %, and names every row
# that differs by more, is missing or is new. .ci/run makes the counts themselves, with a release
# build.
#
# Promise: The guard of instruction counts reports every row that differs by more than 3 %, is missing or is new.
set -u
source=$1
tool=$source/tools/count-instructions
table=$source/tests/guard/instructions.txt
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# scaled ROW FACTOR: prints the committed table with one row (or with each row: .) times FACTOR
scaled() {
    awk -v row="$1" -v factor="$2" '!/^#/ && (row == "." || $1 == row) { $2 *= factor } { print }' "$table" >"$work/new"
}

passes() {
    "$tool" --compare "$table" "$work/new" >"$work/out" 2>&1 || fail "$1: $(cat "$work/out")"
    [ -s "$work/out" ] && fail "$1, and yet: $(cat "$work/out")"
}

# offends WHAT LINES TEXT: the tool must print this many lines, one of them with TEXT
offends() {
    "$tool" --compare "$table" "$work/new" >"$work/out" 2>&1
    local status=$?
    [ $status -eq 1 ] || fail "$1: status $status"
    [ "$(wc -l <"$work/out")" -eq "$2" ] || fail "$1: not $2 lines: $(cat "$work/out")"
    grep -qE -- "$3" "$work/out" || fail "$1: does not say \"$3\": $(cat "$work/out")"
}

grep -q '^# compiler ' "$table" && grep -q '^# architecture ' "$table" || fail "the table does not say where it was counted"
rows=$(grep -cv '^#' "$table")
[ "$rows" -ge 40 ] || fail "the table has $rows rows"

scaled . 1
passes "the table itself"
scaled . 1.029
passes "everything dearer by 2.9 %"
scaled . 0.971
passes "everything cheaper by 2.9 %"
scaled launch/3/written 1.032
offends "one row dearer by 3.2 %" 1 '^launch/3/written +[0-9.]+ -> +[0-9.]+ +\(\+3\.2 %\)$'
scaled done 0.9
offends "one row cheaper by 10 %" 1 '^done +[0-9.]+ -> +[0-9.]+ +\(-10\.0 %\)$'
scaled . 1.05
offends "all rows dearer" "$rows" '^copy/device '
grep -v '^fill ' "$table" >"$work/new"
offends "a row that is gone" 1 '^fill: .* not in '
{ cat "$table"; echo 'launch/9 100.0'; } >"$work/new"
offends "a row that is new" 1 '^launch/9: .* not in '
{ cat "$table"; echo 'launch/9'; } >"$work/new"
offends "a row without a count" 1 'not a row: launch/9'
"$tool" --compare "$table" "$work/none" >/dev/null 2>&1
[ $? -eq 2 ] || fail "a table that is not there"
"$tool" --no-such-option >/dev/null 2>&1
[ $? -eq 2 ] || fail "an option that it does not have"
exit $failed
