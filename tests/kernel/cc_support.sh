#!/bin/sh
# cc_support.sh - shared by the tests of `heddle cc`: a folder that is removed after the test, a
# folder for temporary files, and checks of commands. The shell of the test sets `source` and then
# reads this file. `failures` counts failed checks.

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

# expect STATUS TEXT COMMAND...: the command must end with STATUS, and print TEXT on stderr
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
