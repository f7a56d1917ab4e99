# support.sh - what the tests of the tool share; sourced by them. Expects: tool, work (a folder), command (the words between the tool and what is
# tried, such as bench copy). Sets failed to 1 where something is not as it should be.
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
