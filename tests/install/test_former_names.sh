#!/usr/bin/env bash
# test_former_names.sh - each former name compiles, and HD_NO_DEPRECATED hides it.
#
# Promise: Programs use former names until they define HD_NO_DEPRECATED, which hides all of them.
set -u
. "$1/tests/support/installed.sh"
needs "${CXX:-c++}"
include=$1/include
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0
flags=(-Wall -Wextra -Werror -Wno-deprecated-declarations -fsyntax-only "-I$include")

# accepted COMPILER FILE [FLAG]...: the program compiles
accepted() {
    "$1" "${flags[@]}" "${@:3}" "$2" >"$work/messages" 2>&1
}

# former NAME C-OR-C++ USE: the use compiles, but not with HD_NO_DEPRECATED
names=0
former() {
    names=$((names + 1))
    if [ "$2" = c ]; then
        local compiler=${CC:-cc} file=$work/one.c
        printf '#include <heddle.h>\nvoid use(void);\nvoid use(void)\n{\n    %s;\n}\n' "$3" >"$file"
    else
        local compiler=${CXX:-c++} file=$work/one.cc
        printf '#include <heddle.hpp>\nvoid use(hd::lane_ref lane, hd::runtime_ref runtime, const hd::ticket &ticket);\n' >"$file"
        printf 'void use(hd::lane_ref lane, hd::runtime_ref runtime, const hd::ticket &ticket)\n{\n' >>"$file"
        printf '    auto f = [](auto...) { return HD_OK; };\n    (void)lane, (void)runtime, (void)ticket, (void)f;\n    %s;\n}\n' "$3" >>"$file"
        set -- "$@" -std=c++17
    fi
    accepted "$compiler" "$file" "${@:4}" || { cat "$work/messages"; echo "$1 does not compile"; status=1; }
    if accepted "$compiler" "$file" "${@:4}" -DHD_NO_DEPRECATED || ! grep -q "$1" "$work/messages"; then
        echo "HD_NO_DEPRECATED does not hide $1"
        status=1
    fi
}

former hd_lane_after c '(void)hd_lane_after(NULL, (hd_ticket){NULL, 0}, NULL)'
former hd_lane_call c '(void)hd_lane_call(NULL, NULL, NULL, NULL, 0, NULL)'
former hd_host_call c '(void)hd_host_call(NULL, NULL, NULL, NULL, 0, NULL)'
former hd_also c '(void)hd_also(hd_in(NULL))'
former HD_ALLOC_ONE_PIECE c 'unsigned flags = HD_ALLOC_ONE_PIECE; (void)flags'
former after c++ '(void)lane.after(ticket)'
former also c++ '(void)hd::also(hd_arg{})'
former host_call c++ '(void)hd::host_call(runtime, f)'
former lane_call c++ '(void)hd::lane_call(lane, f)'

listed=$(grep -rhoE '^HD_DEPRECATED_NAME|deprecated\("its name is [a-z]|the former name, which' "$include" | wc -l)
[ "$listed" -eq $names ] || { echo "the headers have $listed former names, and this test knows $names"; status=1; }
printf '#include <heddle.hpp>\n' >"$work/all.cc"
accepted "${CXX:-c++}" "$work/all.cc" -std=c++17 -DHD_NO_DEPRECATED || { cat "$work/messages"; status=1; }
exit $status
