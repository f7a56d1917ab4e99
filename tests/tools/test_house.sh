#!/usr/bin/env bash
# test_house.sh - tools/check-house counts in a made-up tree, and no figure of this tree got worse.
#
# Promise: A figure of the house that gets worse fails the check, and its table may only improve.
set -u
source=$1
. "$source/tests/support/installed.sh"
needs python3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
tool=$source/tools/check-house
tree=$work/tree
mkdir -p "$tree/src/base" "$tree/tests/base" "$tree/tools/house" "$tree/tools/names"
touch "$tree/tools/names/foreign.txt"

fail() {
    echo "FAILED: $*"
    failed=1
}

# is FIGURE VALUE: the figure of the made-up tree must be VALUE
is() {
    local value
    value=$("$tool" "$tree" | awk -v figure="$1" '$1 == figure { print $2 }')
    [ "$value" = "$2" ] || fail "$1 is $value, not $2"
}

# ends STATUS [OPTION]: the check of the made-up tree must end with STATUS
ends() {
    "$tool" "${@:2}" "$tree" >"$work/out" 2>&1
    local status=$?
    [ $status -eq "$1" ] || fail "${*:2}: status $status, not $1: $(cat "$work/out")"
}

cat >"$tree/src/base/some.c" <<'END'
/* some.c - returns numbers. */
static int some_number(void)
{
    return 1;
}
END
ends 1 # without a table
ends 0 --update
ends 0
is has 0
is one_word_names 0

mkdir -p "$tree/cli/doctor"
printf '/* a.c - judges. */\nstatic int judge_some(void)\n{\n    return 1;\n}\n' >"$tree/cli/doctor/a.c"
is roomless_names 1
ends 1
sed -i 's/judge_some/doctor_judge_some/' "$tree/cli/doctor/a.c"
is roomless_names 0
ends 0
rm "$tree/cli/doctor/a.c"

printf '/* It has a lock. It has %s. */\n' "$(printf 'w %.0s' $(seq 14))" >"$tree/src/base/other.c"
ends 1
grep -q '^has .*WORSE' "$work/out" || fail "a word more is not found"
ends 1 --update # the update refuses a worse figure
rm "$tree/src/base/other.c"

{
    printf '/* other.c - returns numbers. */\nstatic int some_number(void)\n{\n'
    printf '    some();\n%.0s' $(seq 70)
    printf '}\n\nstatic int take(void)\n{\n    return 1; /* %s */\n}\n' "$(printf 'wide %.0s' $(seq 20))"
} >"$tree/src/base/other.c"
is longest_function 73
is one_word_names 33.3
is shared_names 1
is wide_comments 1
ends 0 --list shared_names
grep -q 'src/base/other.c:2 src/base/some.c:2: some_number' "$work/out" || fail "the list lacks a place: $(cat "$work/out")"
printf '/* See gone_function. */\n' >"$tree/src/base/other.c"
is false_names 1

# Each file calls the next one, the last two through a header. d.c is in no circle.
mkdir "$tree/src/engine"
printf 'int in_b(void);\nint in_c(void);\nstatic inline int in_header(void)\n{\n    return in_c();\n}\n' >"$tree/src/engine/all.h"
is engine_circle 0
printf 'int in_a(void)\n{\n    return in_b(); /* in_d */\n}\n' >"$tree/src/engine/a.c"
printf 'int in_b(void)\n{\n    return in_header();\n}\n' >"$tree/src/engine/b.c"
printf 'int in_c(void)\n{\n    return sizeof "in_d" + in_b();\n}\n' >"$tree/src/engine/c.c"
printf 'int in_d(void)\n{\n    return in_a();\n}\n' >"$tree/src/engine/d.c"
is engine_circle 2
ends 0 --list engine_circle
grep -q '^src/engine/b.c: src/engine/c.c: in_c$' "$work/out" || fail "the list lacks a use: $(cat "$work/out")"

[ $failed -eq 0 ] || exit 1
exec "$tool" "$source"
