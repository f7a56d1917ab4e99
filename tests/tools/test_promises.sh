#!/usr/bin/env bash
# test_promises.sh - tools/check-promises finds violations in made-up trees, and none in this tree.
#
# Promise: Each file of tests names its promise in its head, and the check reports one that does not.
set -u
check=$1/tools/check-promises
"$check" "$1" || exit 1

tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/tests/a/b"
printf '/* test_good.c - a good one.\n *\n * Promise: It has\n * a promise.\n * Tier: full.\n */\n' >"$tree/tests/a/test_good.c"
printf '#!/bin/sh\n# test_good.sh - a good one.\n#\n# Promise: It has another promise.\ntrue\n' >"$tree/tests/a/test_good.sh"
output=$("$check" "$tree") || {
    echo "good files were refused: $output"
    exit 1
}

# refuses TEXT FILE CONTENT: the check must refuse a tree with that file with TEXT, and for no other
# reason
refuses() {
    printf "$3" >"$tree/tests/$2"
    if output=$("$check" "$tree") || ! grep -qF "tests/$2: $1" <<<"$output" || [ "$(wc -l <<<"$output")" -ne 1 ]; then
        echo "$2 was not refused with \"$1\", but: $output"
        exit 1
    fi
    rm "$tree/tests/$2"
}
refuses 'does not begin with' a/test_x.c '#include <a.h>\n/* test_x.c - late.\n * Promise: It comes late. */\n'
refuses 'does not begin with' a/test_x.c '/* test_y.c - another name.\n * Promise: It has another name. */\n'
refuses 'its head has 0 lines' a/b/test_x.c '/* test_x.c - none. */\n/* Promise: It is outside. */\n'
refuses 'its head has 0 lines' a/b/test_x.sh '#!/bin/sh\n# test_x.sh - none.\n\n# Promise: It is outside.\n'
refuses 'its head has 2 lines' a/test_x.c '/* test_x.c - two.\n * Promise: It has one.\n * Promise: It has two. */\n'
refuses 'its promise is no sentence' a/test_x.c '/* test_x.c - no full stop.\n * Promise: It has none\n */\n'
refuses 'its promise has 26 words' a/test_x.c "/* test_x.c - long.\n * Promise: $(printf 'a %.0s' {1..25}) b.\n */\n"
refuses 'its promise is also that of tests/a/test_good.c' a/test_x.c '/* test_x.c - the same.\n * Promise: It has a promise.\n */\n'
refuses '"Tier: slow."' a/test_x.c '/* test_x.c - a tier.\n * Promise: It has a tier.\n * Tier: slow.\n */\n'
refuses '"Placements: some."' a/test_x.c '/* test_x.c - a placement.\n * Promise: It has a placement.\n * Placements: some.\n */\n'
