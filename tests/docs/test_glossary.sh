#!/usr/bin/env bash
# test_glossary.sh - docs/glossary.md: each word has one meaning, and the file that defines the word
# exists and contains it.
#
# Promise: Each word of the glossary has one meaning and is in the file that defines it.
set -u
source=$1
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
rows=$(awk -F' *\\| *' '/^\| [a-z]/ && $2 != "word" { print $2 "|" $3 "|" $4 }' "$source/docs/glossary.md")
[ "$(printf '%s\n' "$rows" | wc -l)" -ge 60 ] || fail "found too few rows"
while IFS='|' read -r words meaning where; do
    file=${where//\`/}
    [ -e "$source/$file" ] || fail "$words: there is no $file"
    [ -n "$meaning" ] || fail "$words: no meaning"
    while read -r word; do
        # "peer access" may be written as "peer_access", or as its two words near each other
        pattern=$(printf '%s' "$word" | sed 's/[ -]/[_ -]?/g; s/y$/(y|ies)/; s/e$/(e|ing)/')
        grep -qiE "$pattern" "$source/$file" || fail "$file does not have the word '$word'"
    done < <(printf '%s\n' "$words" | sed 's/, /\n/g')
done < <(printf '%s\n' "$rows")
printf '%s\n' "$rows" | cut -d'|' -f1 | sed 's/, /\n/g' | sort | uniq -d | while read -r word; do
    echo "FAILED: '$word' is there twice"
done | grep . && failed=1
exit $failed
