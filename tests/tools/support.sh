# support.sh - how the tests of the tool begin, and what they share: `. "$1/tests/tools/support.sh" "$2" WORD...` in a test with the source
# and the build as arguments. The words stand between the tool and what is tried, such as bench copy.
#
# Sets tool, command (the words), work (a folder that the test's end removes) and failed: 1 where something is not as it should be. Where the
# program is not built, the test is skipped.
. "${BASH_SOURCE%/*}/../support/installed.sh"
tool=$1/heddle
command=("${@:2}")
program=$tool
[ "$2" != bench ] || program=$tool-bench
[ -x "$program" ] || {
    echo "skipped: $program is not built"
    exit 77
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# refused STATUS TEXT ARGUMENT...: ends with that status, says so on stderr, prints no results
refused() {
    local status=$1 text=$2
    shift 2
    "$tool" "${command[@]}" "$@" >"$work/out" 2>"$work/err"
    local got=$?
    [ $got -eq "$status" ] || fail "${command[*]} $*: status $got, not $status: $(cat "$work/err")"
    grep -qF -- "$text" "$work/err" || fail "${command[*]} $*: does not say \"$text\": $(cat "$work/err")"
    [ -s "$work/out" ] && fail "${command[*]} $*: prints results: $(head -n 3 "$work/out")"
    return 0
}
