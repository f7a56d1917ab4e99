"""exports.py - compares the exports of `heddle trace` with its analysis of the same trace as JSON.

usage: exports.py chrome|rows|hta|pytorch ANALYSIS EXPORT [READER]
"""

import json
import os
import pickle
import sys
import warnings

failures = 0


def check(condition, text):
    global failures
    if not condition:
        print("FAILED:", text)
        failures += 1


def close(a, b, text, within=1.0):
    check(abs(a - b) <= within, "%s: %s, not %s" % (text, a, b))


def union(spans):
    total, end = 0.0, float("-inf")
    for begin, finish in sorted(spans):
        total += max(0.0, finish - max(begin, end))
        end = max(end, finish)
    return total


def spans_of(events, categories):
    return [(e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["cat"] in categories]


def chrome(analysis, path):
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    events = document["traceEvents"]
    devices = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    check(len(devices) == 1 + len(analysis["devices"]), "processes: %s" % devices)
    for device in analysis["devices"]:
        pid = 1000000000 + device["device"]
        check(pid in devices, "device %d is no process" % device["device"])
        own = [e for e in events if e["pid"] == pid]
        compute = spans_of(own, ("kernel", "gpu_memset"))
        close(union(compute), device["compute_ns"] / 1000, "compute of device %d" % device["device"])
        close(union(spans_of(own, ("idle",))), device["idle_ns"] / 1000, "idle time of device %d" % device["device"])
    begun = sorted(e["id"] for e in events if e["ph"] == "s")
    check(begun == sorted(e["id"] for e in events if e["ph"] == "f"), "arrows without an end")
    check(len(begun) == len(set(begun)), "two arrows with one number")
    check(any(e["ph"] == "s" and e["cat"] == "wait" for e in events), "no arrow for a wait")


def rows(analysis, path):
    """Checks the trace of test_export.sh: ranges, intervals, pauses and memory have their rows, times and values."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    ranges = [(e["name"], e["tid"], e["ts"], e["dur"]) for e in events if e.get("cat") == "user_annotation"]
    check(sorted(ranges) == [('inner "1"', 5, 2, 3), ("open", 6, 15, 35), ("outer", 5, 1, 9)], "ranges: %s" % ranges)
    intervals = [(e["ph"], e["name"], e["id"], e["tid"], e["ts"]) for e in events if e.get("cat") == "interval"]
    expected = [("b", "outer", 1, 5, 2), ("e", "outer", 1, 6, 20), ("b", 'inner "1"', 2, 6, 3), ("e", 'inner "1"', 2, 5, 40)]
    check(intervals == expected, "intervals: %s" % intervals)
    listed = [(i["name"], i["begin_ns"], i["end_ns"], i["began_by"], i["ended_by"]) for i in analysis["intervals"]]
    check(listed == [("outer", 2000, 20000, 5, 6), ('inner "1"', 3000, 40000, 6, 5)], "intervals in JSON: %s" % listed)
    pauses = [(e["name"], e["tid"], e["ts"], e["dur"]) for e in events if e.get("cat") == "pause"]
    expected = [("loads code", 5, 3, 1), ("maps memory", 6, 11, 2), ("waits for work", 5, 12, 8)]
    check(sorted(pauses) == expected, "pauses: %s" % pauses)
    memory = [(e["ph"], e["pid"], e["ts"], e["args"]) for e in events if e.get("cat") == "memory"]
    check(memory == [("C", 1000000000, 4, {"in use": 10, "held": 20}), ("C", 1000000001, 6, {"in use": 7, "held": 9})], "memory: %s" % memory)
    reported = [(e["name"], e["ts"], e["dur"]) for e in events if e.get("cat") == "cupti"]
    check(reported == [("other", 30, 5)], "what is of no operation: %s" % reported)
    kernels = sorted((e["name"], e["ts"], e["dur"]) for e in events if e.get("cat") == "kernel")
    check(kernels == [("axpy", 22, 2), ("axpy", 25, 4)], "operations with CUPTI's times: %s" % kernels)


def hta_rules(analysis, folder):
    """Checks the rules of the reader that its figures do not show."""
    files = {}
    for device in analysis["devices"]:
        path = os.path.join(folder, "rank_%d.json" % device["device"])
        if device["compute_ns"] + device["transfer_ns"] == 0:
            check(not os.path.exists(path), "a file for a device without work")
            continue
        files[device["device"]] = path
        with open(path, encoding="utf-8") as file:
            text = file.read()
        check('"rank": %d' % device["device"] in text, "the rank has no line of its own")
        events = json.loads(text)["traceEvents"]
        runs = [e for e in events if "stream" in e.get("args", {})]
        launches = [e for e in events if e["cat"] == "cuda_runtime"]
        check(events[0]["cat"] == "cpu_op", "the first event may not be one that is linked")
        check(all(e["args"]["stream"] >= 1 for e in runs), "a stream 0")
        numbers = [e["args"]["correlation"] for e in runs]
        check(len(numbers) == len(set(numbers)), "a correlation of two runs")
        check(sorted(numbers) == sorted(e["args"]["correlation"] for e in launches), "runs without a launch")
        check({e["name"] for e in launches} <= {"cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"}, "names of launches")
    return files


def hta(analysis, folder):
    files = hta_rules(analysis, folder)
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    warnings.filterwarnings("ignore")
    try:
        from hta.trace_analysis import TraceAnalysis
    except ImportError:
        print("without: Holistic Trace Analysis")
        return
    read = TraceAnalysis(trace_files=files, trace_dir="")
    times = read.get_temporal_breakdown(visualize=False).set_index("rank")
    kernels = read.get_gpu_kernel_breakdown(visualize=False)[1]
    for device in analysis["devices"]:
        rank = device["device"]
        if rank not in files:
            continue
        row = times.loc[rank]
        # the reader's window goes from the first to the last work of the device
        with open(files[rank], encoding="utf-8") as file:
            runs = spans_of(json.load(file)["traceEvents"], ("kernel", "gpu_memcpy", "gpu_memset"))
        window = max(end for _, end in runs) - min(begin for begin, _ in runs)
        compute, transfer = device["compute_ns"] / 1000, device["transfer_ns"] / 1000
        close(row["compute_time(us)"], compute, "HTA's compute time of %d" % rank)
        close(row["non_compute_time(us)"], transfer, "HTA's other time of %d" % rank)
        close(row["idle_time(us)"], window - compute - transfer, "HTA's idle time of %d" % rank)
        moved = kernels[(kernels["rank"] == rank) & (kernels["kernel_type"] == "MEMORY")]["sum (us)"].sum()
        busy = (device["transfer_ns"] + device["overlap_ns"]) / 1000
        close(float(moved), busy, "HTA's time of copies of %d" % rank)


def pytorch(analysis, path, reader):
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    check(len(snapshot["device_traces"]) == len(analysis["devices"]), "devices of the snapshot")
    entries = [e for trace in snapshot["device_traces"] for e in trace]
    allocations = sum(m["allocations"] for m in analysis["memory"] if m["kind"] == "device")
    check(sum(e["action"] == "alloc" for e in entries) == allocations, "allocations of the snapshot")
    left = sum(m["left_bytes"] for m in analysis["memory"] if m["kind"] == "device")
    check(sum(s["total_size"] for s in snapshot["segments"]) == left, "bytes that are left")
    check(any(e["frames"][0]["name"] == "weights" for e in entries), "no label as a frame")
    if not os.path.exists(reader):
        print("without: PyTorch's reader of snapshots")
        return
    sys.path.insert(0, os.path.dirname(reader))
    import _memory_viz

    check("weights" in _memory_viz.trace(snapshot) or "cudaMalloc" in _memory_viz.trace(snapshot), "PyTorch's trace")
    check("segments" in _memory_viz.segsum(snapshot) or _memory_viz.segsum(snapshot), "PyTorch's sum of segments")
    check("snapshot" in _memory_viz.trace_plot(snapshot), "PyTorch's page")


with open(sys.argv[2], encoding="utf-8") as source:
    given = json.load(source)
{"chrome": chrome, "rows": rows, "hta": hta, "pytorch": pytorch}[sys.argv[1]](given, *sys.argv[3:])
sys.exit(failures > 0)
