#!/usr/bin/env bash
# test_layers.sh - the tree keeps to its layers and exports only its API, and the check reports
# violations.
#
# Promise: The tree keeps to its layers and exports its API alone, and the check reports violations.
set -u
source=$1
build=$2

"$source/tools/check-layers" "$source" "$build" || exit 1

copy=$(mktemp -d) || exit 1
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/src/base" "$copy/src/engine" "$copy/cli/common" "$copy/cli/p2p" "$copy/bench" "$copy/include/heddle"
echo '/* fine */' >"$copy/src/engine/fine.h"

# expect TEXT FILE LINES: the check must refuse a tree whose FILE contains LINES, with TEXT
expect() {
    printf '%s\n' "$3" >"$copy/$2"
    if output=$("$source/tools/check-layers" "$copy") || ! grep -qF "$1" <<<"$output"; then
        echo "$2 with \"$3\" was not refused with \"$1\", but: $output"
        exit 1
    fi
    rm "$copy/$2"
}
expect 'of the lower layer engine' src/base/a.c '/* a */
#include "engine/fine.h"'
expect 'which is in no layer' src/base/a.c '/* a */
#include "other/fine.h"'
expect 'does not open with a comment' src/base/a.c 'int a;'
expect 'the tool includes' cli/a.c '/* a */
#include "engine/fine.h"'
expect 'the tool includes' cli/a.c '/* a */
#include "bench/fine.h"'
expect 'it may include nothing else of cli/' cli/common/a.c '/* a */
#include "cli/cli.h"'
expect 'of the tool it may include cli/common only' bench/a.c '/* a */
#include "cli/cli.h"'
for file in cli/common/fine.h cli/p2p/fine.h bench/fine.h; do
    printf '/* fine */\n#include "engine/fine.h"\n#include "cli/common/other.h"\n' >"$copy/$file"
done
expect 'public header includes' include/heddle/a.h '/* a */
#include "engine/fine.h"'
expect 'calls getenv' src/base/a.c '/* a */
const char *a(void) { return getenv("HOME"); }'
expect 'compares the name of a provider' src/base/a.c '/* a */
bool a(const hd_runtime *rt) { return strcmp(rt->provider->name, "hip") == 0; }'
expect 'compares the name of a provider' src/engine/a.c '/* a */
bool a(const char *name) { return !strcmp(name, "host"); }'
expect 'compares the name of a provider' src/engine/a.c '/* a */
bool a(const char *name) { return strncmp(name,
                                          "nvidia", 6) == 0; }'
for line in 'open(path, O_RDONLY)' 'fcntl(n, F_DUPFD_CLOEXEC, 3)' 'recvmsg(n, &m, 0)' 'dlopen (name, RTLD_NOW)' 'syscall(SYS_pidfd_open, n, 0)' '!gmtime_r(&t, &p)'; do
    expect 'makes a descriptor' src/base/a.c "/* a */
int a(void) { return $line; }"
done
printf '/* open(path) */\nint a(void) { return provider->open("dup(n)") + hdi_descriptor_open(path, 0, 0) + dup_of(n); }\n' >"$copy/src/base/c.c"
expect 'hd_some does not note its name' src/base/a.c '/* a */
hd_status hd_some(int a)
{
    return hdi_fail(HD_ERROR_ARGUMENT, "a is %d", a);
}'
printf '/* a */\nhd_status hd_some(int a)\n{\n    HDI_CALL();\n    return HD_OK;\n}\n' >"$copy/src/base/b.c"
"$source/tools/check-layers" "$copy" >/dev/null || exit 1

# a call of the library must not call a function that begins with HDI_INSIDE_BRIEFLY
mkdir "$copy/build"
printf 'void hd_brief(void);\nvoid within(void);\nvoid within(void) { hd_brief(); }\n' >"$copy/within.c"
(cd "$copy" && cc -c within.c -o within.o && ar rcs build/libheddle.a within.o && cc -shared -fPIC -o build/libheddle.so within.c) || exit 1
touch "$copy/include/heddle.h" "$copy/include/heddle/none.h"
printf '/* a */\nvoid hd_brief(void)\n{\n    HDI_INSIDE_BRIEFLY(rt);\n}\n' >"$copy/src/base/a.c"
output=$("$source/tools/check-layers" "$copy" "$copy/build")
grep -qF 'within.o: calls hd_brief' <<<"$output" || {
    echo "a call of hd_brief within the library was not refused, but: $output"
    exit 1
}

# a symbol of a later layer, by a declaration in the file instead of an include
rm "$copy/src/base/a.c"
objects=$copy/build/CMakeFiles/heddle_objects.dir/src
mkdir -p "$objects/base" "$objects/engine"
printf 'void later(void);\nvoid first(void);\nvoid first(void) { later(); }\n' >"$copy/first.c"
printf 'void first(void);\nvoid later(void);\nvoid later(void) { first(); }\n' >"$copy/later.c"
printf '#include <unistd.h>\nint opens(int n);\nint opens(int n) { return (dup)(n); }\n' >"$copy/opens.c"
(cd "$copy" && cc -c opens.c -o "$objects/base/opens.c.o" && cc -c opens.c -o "$objects/base/descriptor.c.o") || exit 1
(cd "$copy" && cc -c first.c -o "$objects/base/first.c.o" && cc -c later.c -o "$objects/engine/later.c.o") || exit 1
output=$("$source/tools/check-layers" "$copy" "$copy/build")
grep -qF 'base/first.c.o: layer base uses the symbol later of the lower layer engine' <<<"$output" || {
    echo "a symbol of a later layer was not refused, but: $output"
    exit 1
}
if grep -qF 'uses the symbol first' <<<"$output"; then
    echo "a symbol of an earlier layer was refused: $output"
    exit 1
fi

# a function that makes a descriptor, under any name
grep -qF 'base/opens.c.o: refers to dup, which makes a descriptor' <<<"$output" || {
    echo "an object that makes a descriptor was not refused, but: $output"
    exit 1
}
if grep -qF 'base/descriptor.c.o: refers to' <<<"$output"; then
    echo "the file that makes descriptors was refused: $output"
    exit 1
fi
