#!/usr/bin/env bash
# test_docs.sh - documents agree with the code, and all names in comments and documents exist.
# tools/check-docs finds mistakes in a copy of the documents. tools/check-names finds each kind of
# false name in made-up files, and none in this tree.
#
# Promise: Documents name every option, command, function and file. Comments and documents name none that does not exist.
set -u
source=$1
. "$source/tests/support/installed.sh"
"$source/tools/check-docs" "$source" || exit 1

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# finds TEXT FILE SCRIPT: check-docs reports TEXT after sed changed a copy of FILE by SCRIPT
finds() {
    rm -rf "$work/docs" && cp -r "$source/docs" "$work" && sed -i "$3" "$work/$2"
    "$source/tools/check-docs" "$work" >"$work/out" 2>&1 && fail "check-docs passes: $2 $3"
    grep -qF -- "$1" "$work/out" || fail "check-docs lacks \"$1\": $(cat "$work/out")"
}
for part in .ci README.md CHANGELOG.md CMakeLists.txt Makefile bench cli cmake examples include src tests tools; do
    ln -s "$source/$part" "$work/$part"
done
# shellcheck disable=SC2016
finds 'the list of options is not that of src/base/options.h' docs/options.md 's/^- `placement`/- `place`/'
finds 'the list of options is not that of src/base/options.h' docs/options.md '$d'
finds 'the list of options is not that of src/base/options.h' docs/options.md '$s/$/\nMore./'
finds 'lacks a link to docs/guide/memory.md' docs/using.md '/memory.md/d'
finds 'names hd_nothing' docs/guide/memory.md '$s/$/\nCall `hd_nothing`./'
finds 'names HEDDLE_NOTHING' docs/guide/memory.md '$s/$/\nSet `HEDDLE_NOTHING`./'
finds 'docs/guide/memory.md: line 3 has 141 columns' docs/guide/memory.md "3s/.*/$(printf '%141s')/"
finds 'docs/guide/memory.md:3:TO''DO' docs/guide/memory.md '3s/.*/TO''DO/'
finds 'lacks a link to docs/options.md' docs/using.md '/options.md/d'
sed -i 's/^- `placement`/- `place`/' "$work/docs/options.md"
"$source/tools/check-docs" --update "$work" >"$work/out"
cmp "$source/docs/options.md" "$work/docs/options.md" || fail 'check-docs --update writes another list'
rm -r "${work:?}"/*

installed python3 || exit $failed
tool=$source/tools/check-names

# reports STATUS TEXT [DOCUMENT...]: the check must end with STATUS and report TEXT for the tree
# $work/tree
reports() {
    local status=$1 text=$2
    shift 2
    "$tool" "$work/tree" "$@" >"$work/out" 2>"$work/err"
    local was=$?
    [ $was -eq "$status" ] || fail "status $was, not $status: $(cat "$work/out" "$work/err")"
    grep -qF -- "$text" "$work/out" || fail "lacks \"$text\": $(cat "$work/out")"
}

# comment TEXT MESSAGE, document TEXT MESSAGE: the check reports MESSAGE for a file with the line TEXT.
comment() {
    printf '/* some.c - an example. */\n/* %s */\n' "$1" >"$code"
    reports 1 "src/some.c:2: $2"
    printf '/* some.c - an example. */\n' >"$code"
}
document() {
    printf '# A document\n\n%s\n' "$1" >"$page"
    reports 1 "docs/page.md:3: $2"
    printf '# A document\n' >"$page"
}

# described TEXT NAME: the check reports NAME for a function with the comment TEXT.
described() {
    printf '/* some.c - an example. */\n\n/* %s */\nint thing(int size, void *next)\n{\n    return size;\n}\n' "$1" >"$code"
    reports "$([ -z "$2" ]; echo $?)" "${2:+src/some.c:3: describes $2, which is no parameter}"
    printf '/* some.c - an example. */\n' >"$code"
}

mkdir -p "$work/tree/docs" "$work/tree/src/base" "$work/tree/tests/base" "$work/tree/tools/names"
page=$work/tree/docs/page.md
code=$work/tree/src/some.c
foreign=$work/tree/tools/names/foreign.txt
cat >"$work/tree/src/base/thing.h" <<'END'
/* thing.h - what the made-up files name.
 * Locks: none.
 */
typedef struct hd_thing {
    int size;
    void *next;
} hd_thing;
static const hd_thing last_thing = {0, NULL};
int hd_thing_count_u32(const hd_thing *thing);
enum { HD_ERROR_NO_ROOM = 1 };
END
printf '#!/bin/sh\n# calls hd_gone\ntrue\n' >"$work/tree/tests/base/test_thing.sh"

# words that are names
cat >"$code" <<'END'
/* some.c - calls hd_thing_count_u32, and others of hd_thing_* and hd_thing_count_T. Fails with NO_ROOM.
 * Reads hd_thing.size. See base/thing.h, thing.h, test_NAME.sh, and https://example.org/no_such/no_such.c.
 */
const char *text = "/* no_such_comment */";
END
cat >"$page" <<'END'
A `src/base/thing.h`, `tests/base/test_NAME.sh`, `src/*.c`, `thing.h`, `hd_thing_count_u32(NULL)`, `_count_`, `hd_thing.size`.
Also `Locks:`, `5d2ae07`, `/usr/lib/no_such.c` and [a link](../src/some.c).
```
no_such_example("no/such/example.c"); hd_thing_count_u32(&thing);
```
END
reports 0 'the names in 3 files exist'

# shellcheck disable=SC2016
described 'Makes a thing. `size`: the bytes. *next: the next one. Of `hd_thing`: *all* of it, u32 *thing.' ''
# shellcheck disable=SC2016
described 'Makes a thing. `text`: all of it.' text
# shellcheck disable=SC2016
described 'Makes a thing. `size`, `text`: all of it.' text
described 'Makes a thing. False: *last_thing is the next one.' last_thing
comment 'It calls hd_no_such.' 'names hd_no_such,'
comment 'It calls no_such_call.' 'names no_such_call,'
comment 'It calls nothing().' 'names nothing,'
# shellcheck disable=SC2016
comment 'The parameter `nothing`.' 'names nothing,'
comment 'All of hd_nothing_*.' 'names hd_nothing_*,'
comment 'As hd_things_T.' 'names hd_things_T,'
comment 'Errors: NO_ROOM, NO_REASON.' 'names NO_REASON,'
comment 'Only a comment of test_thing.sh has hd_gone.' 'names hd_gone,'
comment 'The bytes of hd_thing.bytes.' 'names hd_thing.bytes,'
comment 'See nothing.h.' 'names nothing.h,'
comment 'See base/some.c.' 'names base/some.c,'

# shellcheck disable=SC2016
{
    document 'First `src/base/nothing.h`, then `src/base/thing.h`.' 'names src/base/nothing.h,'
    document 'See `nothing.c`.' 'names nothing.c,'
    document 'See `tests/nowhere/test_NAME.sh`.' 'names tests/nowhere/test_NAME.sh,'
    document 'See `src/nowhere`.' 'names src/nowhere,'
    document 'It calls `hd_nothing(thing)`.' 'names hd_nothing,'
    document 'A word of the code: `nothing`.' 'names nothing,'
    document 'Also `_nothing_`.' 'names _nothing_,'
    document 'The line `Nothing:`.' 'names Nothing,'
    document 'Reads `hd_thing.bytes`.' 'names hd_thing.bytes,'
    document 'See [this](nothing.md).' 'links to nothing.md,'
    printf '# A document\n\n```\nhd_nothing(1);\n```\n' >"$page"
    reports 1 'docs/page.md:4: names hd_nothing,'

    printf '`hd_gone`, see [this](nothing.md).\n' >"$work/tree/CHANGELOG.md"
    printf '# A document\n' >"$page"
    reports 1 'CHANGELOG.md:1: links to nothing.md,'
    ! grep -q 'hd_gone' "$work/out" || fail 'CHANGELOG.md must not name what is gone'
    rm "$work/tree/CHANGELOG.md"

    # names of other projects
    printf '# a title\nother_call # a project\nnothing_* # another one\n' >"$foreign"
    printf 'The `other_call`.\n' >"$page"
    reports 1 'foreign.txt:3: no text needs nothing_*'
    printf 'The `other_call`, and `nothing_at_all`.\n' >"$page"
    reports 0 'the names in'
    rm "$foreign"

    # single files
    printf '# A document\n' >"$page"
    printf 'See `nothing.c`.\n' >"$work/tree/README.md"
    reports 0 'the names in 2 files exist' docs/page.md src/some.c
    cp "$work/tree/README.md" "$work/other.md"
    reports 1 'other.md:1: names nothing.c,' "$work/other.md"
    "$tool" "$work/tree" "$work/absent.md" >"$work/out" 2>&1
    [ $? -eq 2 ] || fail "a document that is not there: $(cat "$work/out")"
}

[ $failed -eq 0 ] || exit 1
exec "$tool" "$source"
