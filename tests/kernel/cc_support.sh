#!/bin/sh
# cc_support.sh - what the tests of `heddle cc` share: a folder that goes with the test, one for temporary files, and what a command has to do.
# It is read by the shell of the test, which has set `source`. `failures` counts what went wrong.

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir tmp
TMPDIR=$work/tmp
export TMPDIR
failures=0
. "$source/tests/support/installed.sh"
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# expect STATUS TEXT COMMAND...: the exit status, and text on stderr
expect() {
    expected=$1
    text=$2
    shift 2
    "$@" >out 2>err
    status=$?
    [ $status -eq "$expected" ] || fail "exit status $status, not $expected: $* ($(cat err))"
    grep -qF -- "$text" err || [ -z "$text" ] || fail "'$text' is not in the messages of $*: $(cat err)"
    [ -z "$(ls -A tmp)" ] || fail "$* left $(ls tmp) behind"
}
