#!/usr/bin/env bash
# test_prose.sh - tools/check-prose finds each kind of violation in made-up files, and none in this tree.
#
# Promise: The prose check finds long sentences, shapes that nobody would speak, and misspellings; this tree is free of them.
set -u
source=$1
. "$source/tests/support/installed.sh"
needs python3
tool=$source/tools/check-prose
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# reports STATUS TEXT: the check must end with STATUS and report TEXT for the tree $work/tree
reports() {
    "$tool" "$work/tree" >"$work/out" 2>"$work/err"
    local status=$?
    [ $status -eq "$1" ] || fail "status $status, not $1: $(cat "$work/out" "$work/err")"
    grep -qF -- "$2" "$work/out" || fail "lacks \"$2\": $(cat "$work/out")"
}

long='one two three four five six seven eight nine ten eleven twelve thirteen'
mkdir -p "$work/tree/src/base" "$work/tree/tools/prose"
touch "$work/tree/tools/prose/words.txt"
page=$work/tree/README.md
code=$work/tree/src/base/some.c

printf '# Title\n\nA sentence of `some code that has who in it`.\nAnother one.\n\n```c\n/* %s %s */\n```\n' "$long" "$long" >"$page"
printf '/* Returns a copy. A user who wants more asks again. */\nchar text[] = "copy: no room; free some";\n' >"$code"
reports 0 '2 files pass'

printf 'It has %s, and %s.\n' "$long" "$long" >"$page"
reports 1 'README.md:1: a sentence of 29 words'
printf 'It ends.\n\n- An entry.\n- One; two; three.\n' >"$page"
reports 1 'README.md:4: a sentence with 2 semicolons'
printf 'It ends. And begins again.\n' >"$page"
reports 1 'README.md:1: more than one sentence in a line'
printf '| a | b |\n|---|---|\n| x | the lock is the engine'"'"'s |\n' >"$page"
reports 1 'README.md:3: "engine'"'"'s"; write:'

# shape TEXT REPORTED: the check must report a sentence that nobody would speak
shape() {
    printf '%s\n' "$1" >"$page"
    reports 1 "README.md:1: \"$2\"; write:"
}
shape 'A trace has what each operation waited for.' 'has what'
shape 'What is freed comes back.' 'What is'
shape 'So it is with processes.' 'So it is'
shape 'There is no call that waits.' 'There is no call that'
shape 'It is one of the driver'"'"'s.' 'of the driver'"'"'s'
printf '# What it costs\n\nWhat is it?\nThe message says what failed, and nobody waits.\n' >"$page"
reports 0 '2 files pass'

printf 'It ends.\n' >"$page"
printf '\n/* The lock.\n * It has what is left.\n */\n' >"$code"
reports 1 'src/base/some.c:2: "has what"; write:'
printf '// a count %s\n// and %s\nint x;\n' "$long" "$long" >"$code"
reports 1 'src/base/some.c:1: a sentence of 29 words'
printf 'char text[] = "copy: the device "\n              "has what it needs";\n' >"$code"
reports 1 'src/base/some.c:1: "has what"; write:'

[ $failed -eq 0 ] || exit 1
exec "$tool" "$source"
