# installed.sh - functions for scripts, which print the checks that a test leaves out since an
# optional part is not installed. tools/left-out collects these lines for the end of `make test`.

# without PART: prints the part. Behind PART may stand ": " and the left-out checks.
without() {
    echo "without: $*"
}

# installed PROGRAM: true if the program is in PATH. Otherwise prints its name.
installed() {
    command -v "$1" >/dev/null || {
        without "$1"
        return 1
    }
}

# needs PROGRAM: skips the whole test if the program is not in PATH.
needs() {
    installed "$1" || exit 77
}
