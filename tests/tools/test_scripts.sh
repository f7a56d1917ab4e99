#!/usr/bin/env bash
# test_scripts.sh - the scripts of the tree parse, are executable, explain themselves, and refuse
# unknown arguments.
#
# Promise: Every script of the tree parses, can be run, prints its usage for --help, and refuses what it does not support.
set -u
cd "$1" || exit 1
. tests/support/installed.sh
status=0
python=
! installed python3 || python=yes
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
for script in tools/* .ci/run; do
    [ -f "$script" ] || continue
    case $(head -n 1 "$script") in
    *python3) [ -n "$python" ] || continue ;;
    esac
    # a script that ignores --help would do all of its work: the time limit ends it
    text=$(timeout 60 "$script" --help) || {
        echo "$script --help: exit status $?"
        status=1
    }
    case $text in
    *"usage: $script"*) ;;
    *)
        echo "$script --help: prints no usage"
        status=1
        ;;
    esac
    if timeout 60 "$script" --no-such-option >/dev/null 2>&1; then
        echo "$script takes an option that it does not have"
        status=1
    fi
    for made in --help --no-such-option; do
        [ ! -e "$made" ] || {
            echo "$script: makes a folder $made"
            rm -r -- "$made"
            status=1
        }
    done
done
exit $status
