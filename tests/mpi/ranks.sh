# ranks.sh - functions for scripts that run a program on several ranks, with MPICH or with Open MPI.
# A script that reads this file gets `source`, `build`, a folder `work` that goes away, and `failed`, which
# `fail TEXT` sets. Without MPICH the script ends with 77.
#
# In a build with a sanitizer, the program gets the same sanitizer. Then the script uses MPICH alone:
# Open MPI loses memory by design, and its threads use atomics that the sanitizers cannot see.

source=$1
build=$2
. "$source/tests/support/installed.sh"
needs mpicc.mpich
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

export HEDDLE_DRIVER=host

# Open MPI refuses to run as root without these two
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# The sanitizers of the build, such as address,undefined; empty: none. With the two settings below, they report
# nothing about MPICH itself, so no report is suppressed.
sanitizer=$(sed -n 's/^HEDDLE_SANITIZE:[A-Z]*=//p' "$build/CMakeCache.txt")
placements='thread process'
kinds='mpich openmpi'
if [ -n "$sanitizer" ]; then
    kinds=mpich
    # UCX, on which MPICH is built, replaces madvise and others. Both sanitizers need the real ones: a thread
    # that ends calls madvise when the sanitizer has forgotten the thread.
    export UCX_MEM_EVENTS=n
    # its detection of PCI devices loses memory in a library that it unloads, which no suppression can name
    export HWLOC_COMPONENTS=-pci
fi
case $sanitizer in
*thread*) placements=thread ;;
*address*) placements=process ;;
esac

# compiled MPI PROGRAM [FLAG...]: compiles tests/mpi/PROGRAM.c. PROGRAM may begin with a folder, relative to
# tests/mpi. MPI is mpich or openmpi. False: this MPI is not installed, or the program
# does not compile, which is a failure of the test.
compiled() {
    local mpi=$1 program=$2
    shift 2
    installed "mpicc.$mpi" || return 1
    "mpicc.$mpi" -std=gnu11 -O1 -g -Wall -Wextra -Werror ${sanitizer:+"-fsanitize=$sanitizer"} -I "$source/include" "$@" \
        "$source/tests/mpi/$program.c" -o "$work/${program##*/}.$mpi" -L "$build" -lheddle "-Wl,-rpath,$build" || {
        fail "$program.c does not compile with $mpi"
        return 1
    }
}

# ranks MPI N PROGRAM ARGUMENT...: runs the compiled program on N ranks. No rank waits for an input.
ranks() {
    local mpi=$1 n=$2 program=$3
    shift 3
    local more=()
    [ "$mpi" = mpich ] || more=(--oversubscribe)
    "mpiexec.$mpi" "${more[@]}" -n "$n" "$work/$program.$mpi" "$@" </dev/null
}

# try MPI PLACEMENT N PROGRAM ARGUMENT...: runs the program on N ranks, and the test fails if the program does.
try() {
    HEDDLE_PLACEMENT=$2 ranks "$1" "${@:3}" || fail "$4 ${*:5} with $1, placement $2, $3 ranks"
}
