#!/usr/bin/env bash
# test_links.sh - follows every link of the documents to files and headings, in the tree and in an
# installation.
#
# Promise: No link of a document is dead, in the tree or in an installation.
set -u
source=$1 build=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

# anchors FILE: prints the anchors of the headings of a Markdown page
anchors() {
    sed -n '/^```/,/^```/!s/^##* //p' "$1" | tr 'A-Z' 'a-z' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

# follow FILE: prints each dead link
follow() {
    local link path anchor
    sed '/^```/,/^```/d' "$1" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//' | grep -v '^[a-z]*:' | sort -u | while read -r link; do
        path=${link%%#*} anchor=
        [[ $link != *'#'* ]] || anchor=${link#*#}
        path=${path:+$(dirname "$1")/$path}
        path=${path:-$1}
        if [ ! -e "$path" ]; then
            echo "$link"
        elif [ -n "$anchor" ] && ! anchors "$path" | grep -qxF -- "$anchor"; then
            echo "$link"
        fi
    done
}

# finds dead links, and only these
mkdir "$work/some"
printf '# A (b) `c_d`\n[x](other.md) [y](other.md#two-words) [z](#a-b-c_d) [w](https://nowhere/)\n```c\n[i](none)\n```\n' >"$work/some/page.md"
printf '# Two words\n' >"$work/some/other.md"
[ -z "$(follow "$work/some/page.md")" ] || fail "good links count as dead: $(follow "$work/some/page.md")"
printf '[x](gone.md) [y](other.md#three) [z](#none)\n' >>"$work/some/page.md"
[ "$(follow "$work/some/page.md" | wc -l)" -eq 3 ] || fail "dead links are missed: $(follow "$work/some/page.md")"

cmake --install "$build" --prefix "$work/prefix" >/dev/null || exit 1
count=0
for page in "$source"/*.md "$source"/docs/*.md "$source"/docs/guide/*.md "$source"/tests/*/*.md "$source"/tests/*/*/*.md \
    "$work"/prefix/share/doc/*/*.md "$work"/prefix/share/doc/*/guide/*.md; do
    [ -e "$page" ] || continue
    count=$((count + 1))
    dead=$(follow "$page")
    [ -z "$dead" ] || fail "${page#"$work/"}: $(echo "$dead" | paste -sd' ')"
done
[ $count -ge 60 ] && [ -e "$work/prefix/share/doc/heddle/using.md" ] || fail "there are $count documents"
for page in "$source"/docs/guide/*.md; do
    [ -e "$work/prefix/share/doc/heddle/guide/${page##*/}" ] || fail "${page##*/} is not installed"
done
exit $failed
