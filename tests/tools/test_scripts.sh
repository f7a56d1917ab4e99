#!/usr/bin/env bash
# test_scripts.sh - the scripts of the tree parse, are executable, and refuse unknown arguments.
#
# Promise: Every script of the tree parses, can be run, and refuses what it does not support.
set -u
cd "$1" || exit 1
status=0
for script in tools/* .ci/run tests/*/*.sh cli/heddle.bash; do
    [ -f "$script" ] || continue
    case $(head -n 1 "$script") in
    *bash*) bash -n "$script" || status=1 ;;
    *sh) sh -n "$script" || status=1 ;;
    esac
done
for script in tools/* .ci/run; do
    if [ -f "$script" ] && ! [ -x "$script" ]; then
        echo "$script: cannot be executed"
        status=1
    fi
done
if tools/install-deps --no-such-option 2>/dev/null; then
    echo "tools/install-deps takes an option that it does not have"
    status=1
fi
exit $status
