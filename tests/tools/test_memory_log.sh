#!/usr/bin/env bash
# test_memory_log.sh - tools/memory-log reads the logs of RMM, of PyTorch and its own, writes them
# back, and refuses all other files.
#
# Promise: The logs of RMM, PyTorch and Heddle are read and written without loss; any other file is refused.
# Tier: full.
set -u
source=$1
. "$source/tests/support/installed.sh"
needs python3
export PYTHONDONTWRITEBYTECODE=1
tool=$source/tools/memory-log
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() {
    echo "$*"
    failures=$((failures + 1))
}

# gives FILE WORDS...: the tool must succeed, and print exactly the content of FILE
gives() {
    local wanted=$1
    shift
    python3 "$tool" "$@" >got 2>errors || fail "memory-log $*: status $?: $(cat errors)"
    [ ! -s errors ] || fail "memory-log $* said: $(cat errors)"
    diff -u "$wanted" got || fail "memory-log $*: not what was expected"
}

# refuses TEXT WORDS...: the tool must end with status 2, print one line with TEXT, and no output
refuses() {
    local text=$1 status
    shift
    python3 "$tool" "$@" >got 2>errors </dev/null
    status=$?
    [ "$status" = 2 ] && [ ! -s got ] && [ "$(wc -l <errors)" = 1 ] && grep -qF -- "$text" errors ||
        fail "memory-log $*: status $status rather than a refusal with \"$text\": $(head -n 3 got) $(head -n 8 errors)"
}

# figure NAME VALUE WORDS...: the figure NAME of --stats --json must be VALUE
figure() {
    local name=$1 value=$2
    shift 2
    python3 "$tool" --stats --json "$@" >got 2>errors || fail "memory-log --stats --json $*: status $?: $(cat errors)"
    python3 -c '
import json, sys
found = json.load(open("got"))[sys.argv[1]]
sys.exit(0 if found == json.loads(sys.argv[2]) else f"{sys.argv[1]} is {found}, not {sys.argv[2]}")' "$name" "$value" ||
        fail "memory-log --stats --json $*"
}

# ---- RMM: an address that is used again, a block from before the recording, a failure, nothing at all, several threads
cat >rmm.csv <<'TEXT'
Thread,Time,Action,Pointer,Size,Stream
11,10:00:00.000001,allocate,0x7f0000000000,1000,0x55d0
11,10:00:00.000002,allocate,0x7f0000001000,2000,(nil)
11,10:00:00.000003,free,0x7f0000000000,1000,0x55d0
12,10:00:00.000004,allocate failure,(nil),99999999,0x55d0
12,10:00:00.000005,allocate,0x7f0000000000,500,(nil)
12,10:00:00.000006,free,0x7f0000009000,64,0x55d0
12,10:00:00.000007,allocate,(nil),0,0x55d0
12,10:00:00.000008,free,0x7f0000000000,500,0x1
TEXT
cat >rmm.hdlog <<'TEXT'
heddle-log 1
# source: RMM log
a 0 64 0
a 1 1000 0
a 2 2000 1
f 1 0
a 3 500 1
f 0 0
f 3 2
TEXT
gives rmm.hdlog rmm.csv
gives rmm.hdlog --from rmm --to hdlog rmm.csv
sed 's/$/\r/' rmm.csv >crlf.csv
gives rmm.hdlog crlf.csv
head -n 4 rmm.hdlog | sed '3d' | sed '3s/.*/a 0 1000 0/' >cut.hdlog
gives cut.hdlog --limit=1 rmm.csv
head -n 7 rmm.hdlog >cut.hdlog
gives cut.hdlog --limit 5 rmm.csv # its fifth and sixth operation come from the same line
cat >without.hdlog <<'TEXT'
heddle-log 1
# source: RMM log
a 0 1000 0
a 1 2000 1
f 0 0
a 2 500 1
f 2 2
TEXT
gives without.hdlog --no-initial rmm.csv
for expected in 'operations 7' 'allocations 4' 'frees 3' 'initial_blocks 1' 'streams 3' 'allocated_bytes 3564' 'smallest_bytes 64' \
    'largest_bytes 2000' 'live_at_end_bytes 2000' 'peak_live_bytes 3064' 'peak_live_blocks 3' 'peak_reserved_bytes null'; do
    # shellcheck disable=SC2086
    figure $expected rmm.csv
done
figure left_out '{"allocations that failed": 1, "allocations of no bytes": 1}' rmm.csv
python3 "$tool" --stats rmm.csv | grep -qE '^peak live bytes +3064$' || fail "--stats without --json lacks the peak"

# a missing free: the log gives the address out again nevertheless
{ head -n 3 rmm.csv; echo '11,10:00:00.000003,allocate,0x7f0000001000,700,0x55d0'; } >lost.csv
printf 'heddle-log 1\n# source: RMM log\na 0 1000 0\na 1 2000 1\nf 1 0\na 2 700 0\n' >wanted
gives wanted lost.csv
figure left_out '{"frees that the recording lacks": 1}' lost.csv

# there and back
python3 "$tool" --to rmm rmm.csv --output back.csv || fail "an RMM log could not be written"
gives rmm.hdlog back.csv
cut -d, -f3,5,6 back.csv >back
cat >wanted <<'TEXT'
Action,Size,Stream
allocate,64,0x0
allocate,1000,0x0
allocate,2000,0x1
free,1000,0x0
allocate,500,0x1
free,64,0x0
free,500,0x2
TEXT
diff -u wanted back || fail "the RMM log that was written is not the one that was read"
gives back.csv --to rmm back.csv

# ---- its own format: blanks, comments, threads, numbers that are used again; notes
printf 'heddle-log 1\r\n# name: one\n#\n\nt 3\na 18446744073709551615 8 5\n f  18446744073709551615\t5\na 7 16 63\nf 7 63\na 7 24 5\n' >own.hdlog
printf 'heddle-log 1\n# name: two: more\n# by: hand\na 0 8 0\nf 0 0\na 1 16 1\nf 1 1\na 2 24 0\n' >own.wanted
gives own.wanted --note 'name=two: more' --note by=hand own.hdlog
gives own.wanted own.wanted
figure peak_live_bytes 24 own.hdlog

# ---- PyTorch: device 1 shows the work of a program, device 0 one block; reserved memory grows and
# shrinks by whole segments
python3 - <<'TEXT' || fail "the snapshots could not be made"
import pickle

def entry(action, address, size, stream=0):
    return {"action": action, "addr": address, "size": size, "stream": stream, "time_us": 5, "frames": []}

MIB = 1 << 20
trace = [
    entry("segment_alloc", 0x10000000, 20 * MIB),  # 2 MiB are there already, from before the recording
    entry("alloc", 0x10000000, 1000),
    entry("alloc", 0x10100000, 5 * MIB, 77),
    entry("free_requested", 0x10000000, 1000),
    entry("alloc", 0x10000800, 300),  # asked for while the other one still waits
    entry("free_completed", 0x10000000, 1000),
    entry("alloc", 0x10000000, 1500),  # the address again
    {"action": "oom", "size": 1 << 40, "stream": 0, "device_free": 5, "frames": []},
    entry("segment_map", 0x20000000, 8 * MIB),
    entry("free_requested", 0x05000000, 700),  # from before the recording, its segment given back since
    entry("free_completed", 0x05000000, 700),
    entry("segment_unmap", 0x20000000, 6 * MIB),
    entry("free_completed", 0x10000800, 300),  # its request is not in the recording
    entry("annotate", 0x10000000, 1500),
    entry("segment_free", 0x30000000, 4 * MIB),
    entry("snapshot", 0, 0),
]
segments = [
    {"device": 0, "address": 0x90000000, "total_size": 64 * MIB, "stream": 0, "blocks": []},
    {"device": 1, "address": 0x10000000, "total_size": 20 * MIB, "stream": 0, "blocks": [
        {"address": 0x10000000, "size": 2048, "requested_size": 1500, "state": "active_allocated"},
        {"address": 0x10000800, "size": 512, "requested_size": 0, "state": "inactive"},
        {"address": 0x10000a00, "size": 1024, "requested_size": 900, "state": "active_allocated"},
        {"address": 0x10100000, "size": 5 * MIB, "requested_size": 5 * MIB, "state": "active_allocated"}]},
    {"device": 1, "address": 0x20000000, "total_size": 2 * MIB, "stream": 0, "blocks": [
        {"size": 2 * MIB, "requested_size": 0, "state": "inactive"}]},
]
whole = {
    "segments": segments,
    "device_traces": [[entry("alloc", 0x90000000, 512)], trace],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
    "external_annotations": [],
}
for protocol in (0, 2, 3, 4, 5):  # PyTorch writes Python's default, 4 or 5
    with open(f"torch{protocol}.pickle", "wb") as file:
        pickle.dump(whole, file, protocol)
whole["device_traces"] = [[], [entry("alloc", 0x90000000, 512, 9)]]
whole["allocator_settings"] = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
del whole["segments"]
with open("small.pickle", "wb") as file:
    pickle.dump(whole, file)
for name, value in {
    "list": [1, 2], "no_trace": {"segments": [], "device_traces": [[], []]}, "deep": {"device_traces": 5},
    "entries": {"device_traces": [[1]]}, "text": {"device_traces": [[entry("alloc", "here", 5)]]},
    "negative": {"device_traces": [[entry("alloc", 5, -5)]]}, "bool": {"device_traces": [[entry("alloc", True, 5)]]},
    "blocks": {"device_traces": [[entry("alloc", 5, 5)]], "segments": [{"total_size": 5, "blocks": 7}]},
}.items():
    with open(f"bad_{name}.pickle", "wb") as file:
        pickle.dump(value, file)

class Runs:
    def __reduce__(self):
        import os
        return os.system, ("touch was-run",)

class Sneaks:
    def __reduce__(self):
        return eval, ("open('was-run', 'w')",)

for number, (value, protocol) in enumerate(
    [(Runs(), 0), (Runs(), 2), (Runs(), 4), (Sneaks(), 5), ({"device_traces": [[Runs()]]}, 5)]
):
    with open(f"runs{number}.pickle", "wb") as file:
        pickle.dump(value, file, protocol)
raw = {
    "runs5": b"\x80\x02(X\x0d\x00\x00\x00touch was-runios\nsystem\n.",  # the instruction INST
    "extension": b"\x80\x02\x82\x01.",
    "refers": b"\x80\x02X\x05\x00\x00\x00otherQ.",
    "huge": b"\x80\x04\x8e" + (1 << 50).to_bytes(8, "little") + b"x.",
    "array": b"\x80\x05\x96" + (1 << 50).to_bytes(8, "little") + b"x.",
    "memo": b"\x80\x02Nr\xff\xff\xff\xff.",
    "key": b"\x80\x02)q\x00" + 90 * b"h\x00h\x00\x86q\x00" + b"}h\x00Ns.",  # whose hash would take for ever
    "deep": b"\x80\x02" + 200000 * b"]" + 199999 * b"a" + b".",
    "number": b"\x80\x02\x8a\xff" + 255 * b"7" + b".",
    "two": b"\x80\x02NN.",
    "none": b"\x80\x02.",
    "unmarked": b"\x80\x02]e.",
    "below": b"\x80\x02](a.",
    "unknown": b"\x80\x02h\x07.",
}
for name, data in raw.items():
    with open(name + ".pickle", "wb") as file:
        file.write(data)
TEXT

cat >torch.hdlog <<'TEXT'
heddle-log 1
# source: PyTorch memory snapshot
# device: 1
a 0 700 0
a 1 900 0
a 2 1000 0
a 3 5242880 1
f 2 0
a 4 300 0
a 5 1500 0
f 0 0
f 4 0
TEXT
for protocol in 2 3 4 5; do
    gives torch.hdlog --device 1 torch$protocol.pickle
done
refuses 'has the instruction' --from torch torch0.pickle
grep -vE '^a [01]|^f 0' torch.hdlog | sed -E 's/^([af]) ([0-9]+)/echo \1 $((\2 - 2))/' | sed -E '/^echo/!s/.*/echo "&"/' | bash >without.hdlog
gives without.hdlog --no-initial --device=1 torch5.pickle
figure initial_blocks 2 --device 1 torch5.pickle
figure peak_live_bytes $((700 + 900 + 1500 + 300 + 5242880)) --device 1 torch5.pickle
# at the end 22 MiB are reserved. The recording added 20 + 8 - 6 - 4, so 4 were reserved before it,
# and at most 32.
figure peak_reserved_bytes $((32 << 20)) --device 1 torch5.pickle
figure peak_reserved_bytes $((64 << 20)) --device 0 torch5.pickle
figure left_out '{"allocations that failed": 1}' --device 1 torch5.pickle
printf 'heddle-log 1\n# source: PyTorch memory snapshot\n# device: 1\n# allocator settings: expandable_segments:True\na 0 512 0\n' >wanted
gives wanted small.pickle

refuses 'several devices: 0 (1 entries), 1 (16 entries)' torch5.pickle
refuses 'no trace of device 2' --device 2 torch5.pickle
refuses 'it has no device_traces' bad_list.pickle
refuses 'no trace of device 0' bad_no_trace.pickle
refuses 'device_traces: is no list' bad_deep.pickle
refuses 'is no list of entries' bad_entries.pickle
refuses 'entry 0: has no number addr' bad_text.pickle
refuses 'entry 0: -5 is no size' bad_negative.pickle
refuses 'entry 0: has no number addr' bad_bool.pickle
refuses 'segment 0: blocks: is no list of entries' bad_blocks.pickle

# ---- pickles that would run code, and pickles that would take all memory
for number in 0 1 2 3 4 5; do
    refuses 'nothing was run' --from torch runs$number.pickle
done
[ ! -e was-run ] || fail "a pickle had a command run"
refuses 'the instruction GLOBAL' runs1.pickle
refuses 'the instruction STACK_GLOBAL' runs4.pickle
refuses 'the instruction INST' --from torch runs5.pickle
refuses 'the instruction EXT1' extension.pickle
refuses 'the instruction BINPERSID' refers.pickle
refuses 'ends within a value' huge.pickle
refuses 'the instruction BYTEARRAY8' array.pickle
refuses 'it has no device_traces' memo.pickle
refuses 'keys are neither text nor numbers' key.pickle
refuses 'it has no device_traces' deep.pickle
refuses 'has a number of 255 bytes' number.pickle
for name in two none unmarked below unknown; do
    refuses 'is damaged' $name.pickle
done

# ---- damaged files: cut off anywhere, and with any byte changed, they are read or refused
python3 - "$tool" <<'TEXT' || fail "a damaged file was neither read nor refused"
import contextlib
import importlib.machinery
import importlib.util
import io
import pickle
import random
import sys

loader = importlib.machinery.SourceFileLoader("memory_log", sys.argv[1])
tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("memory_log", loader))
loader.exec_module(tool)
choose = random.Random(5)
tried = refused = 0

def attempt(words, data):
    global tried, refused
    with open("damaged", "wb") as file:
        file.write(data)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        status = tool.main([*words, "damaged"])
    said = errors.getvalue()
    if status not in (0, 2) or (status == 2) != said.startswith("memory-log: damaged: ") or (status == 0) != bool(out.getvalue()):
        sys.exit(f"status {status} for {words} {data!r}: {said}")
    tried += 1
    refused += status == 2
    return said

for name, words in (
    ("torch5.pickle", ["--from", "torch", "--device", "1"]), ("torch2.pickle", ["--from", "torch", "--device", "1"]),
    ("rmm.csv", ["--from", "rmm"]), ("own.hdlog", ["--from", "hdlog"]),
):
    with open(name, "rb") as file:
        data = file.read()
    for length in range(len(data)):
        attempt(words, data[:length])
    for place in range(len(data)):
        attempt(words, data[:place] + bytes([choose.randrange(256)]) + data[place + 1 :])
for name in ("GLOBAL STACK_GLOBAL REDUCE BUILD INST OBJ NEWOBJ NEWOBJ_EX PERSID BINPERSID EXT1 EXT2 EXT4"
             " NEXT_BUFFER READONLY_BUFFER BYTEARRAY8").split():
    data = b"\x80\x05(]})" + getattr(pickle, name) + b"\x00" * 8 + b"."
    if f"the instruction {name} at byte" not in attempt(["--from", "torch"], data):
        sys.exit(f"the instruction {name} is taken")
print(f"{tried} damaged files: {refused} refused")
sys.exit(refused < tried // 4)
TEXT

# ---- other files that are refused
head -c 230 rmm.csv >rmm_cut.csv
refuses 'line 5: has 3 fields, not 6 (was the file cut off?)' rmm_cut.csv
while IFS='|' read -r text line; do
    { head -n 2 rmm.csv; printf '%s\n' "$line"; } >bad.csv
    refuses "line 3: $text" bad.csv
done <<'TEXT'
"resize" is no action|1,1:00:00.0,resize,0x7f0000000000,5,0x0
pointer, size or stream is no number|1,1:00:00.0,free,here,5,0x0
pointer, size or stream is no number|1,1:00:00.0,free,0x7f0000000000,many,0x0
pointer, size or stream is no number|1,1:00:00.0,free,0x7f0000000000,5,first
-5 is no size|1,1:00:00.0,allocate,0x7f0000001000,-5,0x0
has 1 fields|garbage
TEXT
while IFS='|' read -r text line; do
    printf 'heddle-log 1\na 1 100 0\n%s\n' "$line" >bad.hdlog
    refuses "line 3: $text" bad.hdlog
done <<'TEXT'
block 1 is allocated already|a 1 100 0
block 2 is not allocated|f 2 0
0 is no size|a 2 0 0
70368744177665 is no size|a 2 70368744177665 0
is none of|a 2 100
is none of|f 1
is none of|x 1 2 3
is none of|a 2 -5 0
is none of|a 18446744073709551616 5 0
there is no stream 64|a 2 5 64
there is no thread 65536|t 65536
TEXT
: >empty
refuses 'is empty' empty
printf 'heddle-log 2\na 1 5 0\n' >later.hdlog
refuses 'line 1: is not "heddle-log 1"' later.hdlog
printf 'heddle-log 1\n# nothing\n' >nothing.hdlog
refuses 'has no allocation' nothing.hdlog
printf 'Thread,Time,Action,Pointer,Size,Stream\n' >nothing.csv
refuses 'has no allocation' nothing.csv
{ head -n 1 rmm.csv; for i in $(seq 65); do echo "1,1:00:00.0,allocate,0x$i,5,$i"; done; } >streams.csv
refuses 'uses 65 streams' streams.csv
head -c 300 /bin/sh >binary
refuses 'by its first bytes' binary
for kind in rmm hdlog torch; do
    refuses 'binary: ' --from $kind binary
done
refuses 'No such file' missing
refuses 'Is a directory' .
refuses 'there is no option --frob' --frob rmm.csv
refuses '--from: csv is none of' --from csv rmm.csv
refuses '--to: torch is none of' --to torch rmm.csv
refuses '--limit: -1 is no number' --limit -1 rmm.csv
refuses '--limit lacks its value' rmm.csv --limit
refuses 'takes no value' --stats=yes rmm.csv
refuses '--json goes with --stats' --json rmm.csv
refuses 'is not KEY=VALUE' --note nothing rmm.csv
refuses 'one file at a time' rmm.csv rmm.csv
refuses 'no file was named'
refuses '--device is for snapshots' --device 0 rmm.csv
refuses 'missing/log: No such file' rmm.csv --output missing/log

# ---- the logs in this tree agree with the data about their recording
python3 - "$tool" "$source/bench/logs" <<'TEXT' || fail "bench/logs: not what was recorded"
import json
import os
import subprocess
import sys

tool, folder = sys.argv[1:]
found = 0
with open(os.path.join(folder, "recorded.jsonl"), encoding="utf-8") as lines:
    for line in map(json.loads, lines):
        if line["allocator"] != "default":
            continue
        path = os.path.join(folder, line["program"] + ".hdlog")
        figures = json.loads(subprocess.check_output([sys.executable, tool, "--stats", "--json", path]))
        if (figures["operations"], figures["peak_live_bytes"]) != (line["operations"], line["peak_live"]):
            sys.exit(f"{path}: {figures}, recorded as {line}")
        found += 1
sys.exit(found != len([name for name in os.listdir(folder) if name.endswith(".hdlog")]))
TEXT

# ---- the scripts for other allocators parse, and write valid logs
for script in "$source"/bench/peers/*.py; do
    python3 -c 'import sys; compile(open(sys.argv[1], encoding="utf-8").read(), sys.argv[1], "exec")' "$script" || fail "$script does not parse"
done
for name in random-100-1 holes-8 live-100; do
    python3 "$source/bench/peers/workloads.py" $name >$name.hdlog && python3 "$tool" --stats $name.hdlog >/dev/null ||
        fail "workloads.py $name: no log"
done
figure peak_live_bytes $((16 * 512)) holes-8.hdlog
if python3 "$source/bench/peers/workloads.py" nonsense >/dev/null 2>&1 || python3 "$source/bench/peers/record_torch.py" >/dev/null 2>&1; then
    fail "a script took what it does not know"
fi

[ $failures = 0 ] || {
    echo "$failures failures"
    exit 1
}
