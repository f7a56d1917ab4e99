#!/usr/bin/env bash
# test_install_deps.sh - tools/install-deps on made-up machines, with a compiler that lacks some
# headers and an apt-get that only notes its calls.
#
# Promise: tools/install-deps asks only for missing packages that are needed; if none is missing, it
# uses no network.
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

# on LACKING STATUS ASKED ARGUMENTS...: the script must ask for the packages ASKED, in order, and
# end with STATUS
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
on cmocka.h 0 '' --build # a build needs no tests
on cmocka.h 1 libcmocka-dev
on stdio.h 1 libc6-dev --build
on 'stdio.h cmocka.h' 1 'libc6-dev libcmocka-dev'

# make demo asks only for the packages that it uses, and make test also for those of the tests
asks() {
    make -C "$source" -n "$1" 2>/dev/null | grep -o 'tools/install-deps.*' | tr '\n' ' '
}
[ "$(asks demo)" = 'tools/install-deps --build ' ] || fail "make demo calls $(asks demo)"
[ "$(asks test)" = 'tools/install-deps ' ] || fail "make test calls $(asks test)"

# every name is a possible name of a package
names=$("$source/tools/install-deps" --names) || fail "--names ends with $?"
[ "$(wc -l <<<"$names")" -ge 20 ] || fail "--names has $names"
grep -vxE '[a-z0-9][a-z0-9.+-]+' <<<"$names" && fail "these are no names of packages"
grep -qx libcmocka-dev <<<"$names" && grep -qx debootstrap <<<"$names" || fail "--names lacks a name: $names"
exit $failed
