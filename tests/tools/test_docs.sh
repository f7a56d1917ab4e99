#!/usr/bin/env bash
# test_docs.sh - the documentation agrees with the code, and names only what the tree has.
#
# Promise: The documentation names every option, command, function and file, and none that does not exist.
set -u
source=$1
"$source/tools/check-docs" "$source" || exit 1
"$source/tools/check-names" "$source" || exit 1

wrong=$(mktemp) || exit 1
trap 'rm -f "$wrong"' EXIT
# expect TEXT LINE: a document with LINE must be refused with TEXT
expect() {
    printf '# A document\n\n%s\n' "$2" >"$wrong"
    if output=$("$source/tools/check-names" "$source" "$wrong") || ! grep -qF "$1" <<<"$output"; then
        echo "a document with \"$2\" was not refused with \"$1\", but: $output"
        exit 1
    fi
}
# shellcheck disable=SC2016
{
    expect 'names `src/base/no_such.h`' 'First `src/base/no_such.h`, then `src/base/rank.h`.'
    expect 'names `no_such.c`' 'See `no_such.c`.'
    expect 'names `tests/nowhere/test_NAME.c`' 'See `tests/nowhere/test_NAME.c`.'
    expect 'names `hdi_no_such''_call`' 'It calls `hdi_no_such''_call(runtime)`.' # in two parts, or this file would have it
    printf 'A `src/base/rank.h`, `tests/base/test_NAME.c`, `rank.h`, `hd_open(NULL)` and `HDI_RANK_MAP`.\n```\n`no/such` block\n```\n' >"$wrong"
}
"$source/tools/check-names" "$source" "$wrong"
