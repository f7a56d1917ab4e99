#!/usr/bin/env bash
# test_tidy.sh - tools/check-tidy in a made-up repository, with a clang-tidy that only notes its
# files: the files that a change touches, a part of them in a clone of one commit, and no success
# without the tool.
#
# Promise: tools/check-tidy checks the sources that a change touches, says how many it leaves out, and fails where it cannot run.
set -u
. "$1/tests/support/installed.sh"
needs git
source=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

# The tool: it finds something in files that contain FOUND, and notes the others.
mkdir -p "$work/bin" "$work/tree/tools" "$work/tree/src/part" "$work/tree/include/heddle"
cat >"$work/bin/clang-tidy-14" <<'END'
#!/bin/bash
[ "$1" != --version ] || { echo 'LLVM version 14.0.6'; exit 0; }
file=${!#}
echo "$file" >>"$NOTES"
! grep -q FOUND "$file" || { echo "$file:1:1: error: found [some-check]"; exit 1; }
! grep -q BROKEN "$file" || exit 1
END
chmod +x "$work/bin/clang-tidy-14"
export NOTES=$work/notes
PATH=$work/bin:$PATH
cd "$work/tree" || exit 1
cp "$source/tools/check-tidy" tools/
echo 'Checks: x' >.clang-tidy
cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.20)
project(tree C)
file(GLOB_RECURSE sources src/*.c)
add_library(once OBJECT ${sources})
add_library(twice OBJECT ${sources})
END
for i in $(seq -w 40); do
    echo "int f$i(void);" >src/part/f"$i".c
done
echo 'int own(void);' >src/part/f01.h
echo 'int all(void);' >src/part/all.h
echo '#include "part/all.h"' >src/part/f07.c
echo 'int kernel(void);' >src/part/some_kernel.c
commit() {
    git add -A && git -c user.name=a -c user.email=a@b -c commit.gpgsign=false commit -q -m "$1"
}
git init -q . && commit first || exit 1

# checks STATUS FILES ARGUMENTS...: the status, and the files that the tool got; a number: how many
checks() {
    local status=$1 wanted=$2 got rc
    shift 2
    : >"$NOTES"
    tools/check-tidy "$@" >"$work/out" 2>&1
    rc=$?
    [ $rc -eq "$status" ] || fail "check-tidy $*: status $rc, not $status: $(cat "$work/out")"
    got=$(sort "$NOTES" | paste -sd' ')
    [[ ! $wanted =~ ^[0-9]+$ ]] || got=$(wc -l <"$NOTES")
    [ "$got" = "$wanted" ] || fail "check-tidy $*: checked $got, not $wanted: $(cat "$work/out")"
}
says() {
    grep -qF -e "$1" "$work/out" || fail "the output lacks '$1': $(cat "$work/out")"
}

# a clone of one commit: a part, the same each time
unset CI_BASE
checks 0 24
says 'one commit only'
says '16 more are left to --all'
sort "$NOTES" >"$work/part"
checks 0 24
sort "$NOTES" | cmp -s - "$work/part" || fail "the part of one commit changes"
checks 0 40 --all # each once, and no kernels
checks 0 5 --most 5

# a change: sources, headers by name and by use, and new files
echo 'int more;' >>src/part/f03.c
echo 'int more;' >>src/part/f01.h
commit second
checks 0 'src/part/f01.c src/part/f03.c'
says '2 files that differ from the commit before the last'
echo 'int more;' >>src/part/all.h
echo 'int new;' >src/part/new.c
checks 0 'src/part/f01.c src/part/f03.c src/part/f07.c src/part/new.c'
checks 0 'src/part/f07.c src/part/new.c' HEAD
commit third
CI_BASE=HEAD~2 checks 0 4
CI_BASE=HEAD~2 checks 0 3 --most 3
says '1 more are left to --all'
CI_BASE=0000000000000000000000000000000000000000 checks 0 2
says 'does not contain CI_BASE'
checks 2 '' no-such-commit
checks 2 '' HEAD --most 3
checks 2 '' --most some
checks 0 '' HEAD
says 'no source'
echo 'Checks: y' >.clang-tidy
checks 0 41 HEAD
says 'every file counts as touched'
git checkout -q .clang-tidy

# findings, a tool that fails, a source that nothing compiles, and a missing tool
echo 'FOUND' >>src/part/f05.c
checks 1 src/part/f05.c HEAD
says 'found [some-check]'
git checkout -q src
echo 'BROKEN' >>src/part/f05.c
checks 2 src/part/f05.c HEAD
git checkout -q src
mkdir cli
echo 'int main(void);' >cli/main.c
checks 2 '' HEAD
says 'CMake compiles cli/main.c into nothing'
rm -r cli
for version in 13 15; do
    sed -i "s/version 1[0-9]/version $version/" "$work/bin/clang-tidy-14"
    checks 77 '' --all
done

exit $failed
