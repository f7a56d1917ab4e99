# installed.sh - for scripts: what a test leaves out where an optional part is not installed. tools/left-out gathers these lines for the end of `make test`.

# without PART: prints it. PART may be followed by ": " and what is left out.
without() {
    echo "without: $*"
}

# installed PROGRAM: whether it is in PATH; prints it where it is not.
installed() {
    command -v "$1" >/dev/null || {
        without "$1"
        return 1
    }
}

# needs PROGRAM: the whole test is skipped where it is not in PATH.
needs() {
    installed "$1" || exit 77
}
