#!/usr/bin/env bash
# test_page.sh - the page of `heddle report` in a headless Chromium. tests/report/page.py draws
# every view, tries every click and key, in the light and dark theme, on paper and on a phone, with
# odd and empty traces and a million records. No script fails, and nothing requests a network.
#
# Promise: The page of `heddle report` shows the content of the files, by mouse and by keys, and
# uses no network.
# Tier: full.
set -u
source=$1 tool=$2/heddle here=$(dirname "$0")
[ -x "$tool" ] || exit 77
. "$source/tests/support/installed.sh"
needs python3
export PYTHONDONTWRITEBYTECODE=1
(cd "$here" && python3 -c 'import sys, browser; sys.exit(browser.find() is None)') || {
    without chromium
    exit 77
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"${CC:-cc}" -std=c11 -O1 -I "$source/src" -o "$work/make_trace" "$here/make_trace.c" || exit 1
if installed node; then
    for script in "$source"/cli/report/page/*.js; do
        node --check "$script" || exit 1
    done
fi
python3 "$here/page.py" "$tool" "$work/make_trace" "$source" "$work"
