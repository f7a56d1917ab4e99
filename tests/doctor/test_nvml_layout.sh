#!/usr/bin/env bash
# test_nvml_layout.sh - the declarations of NVML in `heddle doctor` agree with NVIDIA's own headers:
# that of the toolkit, and those of NVIDIA's wheels.
#
# Promise: The declarations of NVML agree with NVIDIA's header in numbers, structures and arguments,
# if a header is installed.
#
# Without an installed header (tools/install-deps --ci installs two), the test compares nothing.
set -u
source=$1
. "$source/tests/support/installed.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
tried=0

# compile OURS THEIRS
compile() {
    "${CC:-cc}" -std=c11 -Wall -Wextra -Werror -fsyntax-only "-I$1" "-I$source" "-I$source/include" "-I$source/src" -isystem "$2" \
        "$source/tests/doctor/nvml_check.c"
}

# with FOLDER: compares with the header FOLDER/nvml.h
with() {
    local folder=$1 number change
    printf '#include <nvml.h>\n#ifndef nvmlSystemConfComputeSettings_v1\n#error old\n#endif\n' |
        "${CC:-cc}" -E -isystem "$folder" -o /dev/null - 2>/dev/null || return 0
    tried=$((tried + 1))
    compile "$source" "$folder" || failed=1
    # The comparison finds a difference.
    number=0
    for change in 's/unsigned gpu, memory;/unsigned long gpu, memory;/' 's/NVML_GPU_LOST = 15/NVML_GPU_LOST = 14/' \
        's/nvmlDeviceGetMigMode, (nvml_device, unsigned \*, /nvmlDeviceGetMigMode, (nvml_device, /' \
        's/nvmlDeviceGetPersistenceMode/nvmlDeviceGetPersistence/'; do
        number=$((number + 1))
        mkdir -p "$work/$tried.$number/cli/doctor"
        sed "$change" "$source/cli/doctor/nvml.h" >"$work/$tried.$number/cli/doctor/nvml.h"
        cmp -s "$source/cli/doctor/nvml.h" "$work/$tried.$number/cli/doctor/nvml.h" && {
            echo "nothing is changed by $change"
            failed=1
        }
        if compile "$work/$tried.$number" "$folder" 2>/dev/null; then
            echo "with $folder no difference is found after $change"
            failed=1
        fi
    done
    echo "compared: $folder: $(sed -nE 's/^#define (NVML_API_VERSION|NVML_NVLINK_MAX_LINKS) +([0-9]+).*/\1 \2/p' "$folder/nvml.h" | paste -sd' ')"
}

with "${CUDA_PATH:-${CUDA_HOME:-/usr/local/cuda}}/include"
while IFS= read -r header; do
    with "${header%/nvml.h}"
done < <(find "$("$source/tools/install-deps" --where)/nvml_header" -name nvml.h 2>/dev/null)
[ $tried -gt 0 ] || {
    without "NVML's header"
    exit 77
}
exit $failed
