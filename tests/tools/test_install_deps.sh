#!/usr/bin/env bash
# test_install_deps.sh - tools/install-deps on made-up machines: a compiler without some headers, and an apt-get that only notes its calls.
#
# Promise: tools/install-deps asks for what is missing and used, and for nothing, also not a network, where that is there.
set -u
source=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

# The machine: apt-get and sudo note how they were called, and fail. The compiler has no header that `lacking` names.
mkdir "$work/bin"
for program in apt-get sudo wget curl; do
    printf '#!/bin/sh\necho "%s $*" >>"%s"\nexit 1\n' $program "$work/calls" >"$work/bin/$program"
done
cat >"$work/bin/some-cc" <<END
#!/bin/sh
text=\$(cat)
for header in \$(cat "$work/lacking"); do
    case \$text in *"<\$header>"*) exit 1 ;; esac
done
printf '%s\n' "\$text" | ${CC:-cc} "\$@"
END
printf '#!/bin/sh\nexit 0\n' >"$work/bin/some-cxx"
cp "$work/bin/some-cxx" "$work/bin/pkg-config"
cp "$work/bin/some-cxx" "$work/bin/nm"
chmod +x "$work"/bin/*

# on LACKING STATUS ASKED ARGUMENTS...: what it asks for, in order, is ASKED
on() {
    local lacking=$1 status=$2 asked=$3 got rc
    shift 3
    echo "$lacking" >"$work/lacking"
    : >"$work/calls"
    PATH=$work/bin:$PATH CC=some-cc CXX=some-cxx HOME=$work "$source/tools/install-deps" "$@" >"$work/out" 2>&1
    rc=$?
    [ $rc -eq "$status" ] || fail "lacking '$lacking', $*: status $rc, not $status: $(cat "$work/out")"
    got=$(sed -n 's/^install-deps: \(installing \|missing here: \)\([^.]*\).*/\2/p' "$work/out" | head -n 1)
    [ "$got" = "$asked" ] || fail "lacking '$lacking', $*: asks for '$got', not '$asked': $(cat "$work/out")"
    [ -n "$asked" ] || ! [ -s "$work/calls" ] || fail "lacking '$lacking', $*: calls $(cat "$work/calls")"
}

on '' 0 '' --build
on '' 0 ''
on cmocka.h 0 '' --build # building takes no tests
on cmocka.h 1 libcmocka-dev
on stdio.h 1 libc6-dev --build
on 'stdio.h cmocka.h' 1 'libc6-dev libcmocka-dev'

# make demo asks for no more than it uses, make test for the tests as well
asks() {
    make -C "$source" -n "$1" 2>/dev/null | grep -o 'tools/install-deps.*' | tr '\n' ' '
}
[ "$(asks demo)" = 'tools/install-deps --build ' ] || fail "make demo calls $(asks demo)"
[ "$(asks test)" = 'tools/install-deps ' ] || fail "make test calls $(asks test)"

# every name is one that a package may have
names=$("$source/tools/install-deps" --names) || fail "--names ends with $?"
[ "$(wc -l <<<"$names")" -ge 20 ] || fail "--names has $names"
grep -vxE '[a-z0-9][a-z0-9.+-]+' <<<"$names" && fail "these are no names of packages"
grep -qx libcmocka-dev <<<"$names" && grep -qx debootstrap <<<"$names" || fail "--names lacks a name: $names"
exit $failed
