#!/usr/bin/env bash
# test_first_program.sh - follows docs/guide/first-program.md in an empty folder, with an
# installation of this build. It writes the files, runs the commands and compares their output. Then
# it builds a program by the rules for make in docs/kernels.md.
#
# Promise: The commands of docs/guide/first-program.md work in order and print the text shown there;
# the rules for make in docs/kernels.md work, too.
set -u
source=$1 build=$2
. "$source/tests/support/installed.sh"
needs pkg-config
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
while read -r name; do
    unset "$name"
done < <(compgen -v HEDDLE_)
export HOME=$work LD_LIBRARY_PATH=
mkdir "$work/folder"

# One shell runs the whole page. A block of C or make is the file that its first line names. The
# output of commands is kept per block.
awk '
    /^```(sh|c|make|text)$/ { kind = substr($0, 4); number++; first = 1; next }
    /^```$/ { if (kind != "" && kind != "sh") { print (kind == "text" ? "END" : "END") } ; if (kind == "sh") print "} >>\"$HOME/printed\""; kind = ""; next }
    kind == "" { next }
    first && kind == "sh" { print "{"; }
    first && kind == "text" { print "cat >>\"$HOME/wanted\" <<\"END\"" }
    first && (kind == "c" || kind == "make") { name = $2; print "cat >" name " <<\"END\"" }
    { first = 0; print }' "$source/docs/guide/first-program.md" >"$work/page"
grep -c '^make install PREFIX=\$HOME/.local$' "$work/page" | grep -qx 1 || fail "the page does not install as this test thinks"
# the same commands, but without compiling a release build
sed "s|^make install PREFIX=|cmake --install '$build' --prefix |" "$work/page" >"$work/run"
grep -q '^heddle cc' "$work/run" && grep -q '^cat >main.c' "$work/run" && grep -q '^cat >Makefile' "$work/run" || fail "the page lacks a step"
(cd "$work/folder" && bash -eu "$work/run") >"$work/out" 2>&1 || fail "a command of docs/guide/first-program.md fails: $(cat "$work/out" "$work/printed")"
missing=$(grep -vxFf "$work/printed" "$work/wanted")
[ -s "$work/wanted" ] && [ -z "$missing" ] && [ "$(grep -cxFf "$work/wanted" "$work/printed")" -ge "$(wc -l <"$work/wanted")" ] ||
    fail "docs/guide/first-program.md prints something else: $missing $(cat "$work/printed")"
[ -s "$work/folder/first/first.html" ] || fail "there is no page of the run"

# the rules of kernels.md, with a program that uses both kernels
mkdir "$work/rules"
cd "$work/rules" || exit 1
awk '/^```make$/ { on = 1; next } /^```/ { on = 0 } on' "$source/docs/kernels.md" >Makefile
export PATH=$HOME/.local/bin:$PATH PKG_CONFIG_PATH=$HOME/.local/lib/pkgconfig
sed -n '/^\/\* scale\.c/,/^}/p' "$source/docs/guide/first-program.md" >scale.c
sed 's/scale/shift/; s/\*=/+=/' scale.c >shift.c
sed -n '/^\/\* main\.c/,/^```/p' "$source/docs/guide/first-program.md" | sed '/^```/d' >main.c
make HEDDLE_CCFLAGS=--no-gpu >"$work/out" 2>&1 && [ "$(HEDDLE_DRIVER=host ./app)" = 'y[7] = 21' ] && [ -s shift.hdk ] || fail "the rules for make of docs/kernels.md: $(cat "$work/out")"
grep -q 'HEDDLE_CCFLAGS: ignored' "$work/out" && fail "the variables of heddle.mk count as wrong options: $(cat "$work/out")"
exit $failed
