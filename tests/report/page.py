"""page.py - the trials of tests/report/test_page.sh in a browser. usage: page.py TOOL MAKE_TRACE SOURCE WORK [NAME...]

Each function whose name begins with try_ is one trial. Prints each failure. Exit status: 0, or 1 after a failure.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import time

import browser

TOOL, MAKE, SOURCE, WORK = sys.argv[1:5]
RESULTS = os.path.join(SOURCE, "bench/results")
FAILED = []
ALL_VIEWS = ["findings", "summary", "timeline", "idle", "memory", "transfers", "submits", "losses", "compare", "peers", "machine", "bench1", "doctor"]


def check(good, text):
    if not good:
        FAILED.append(text)
        print("FAILED: " + text)


def equal(got, want, text):
    check(got == want, "%s: %r, not %r" % (text, got, want))


def trace_file(shape, count=40):
    path = os.path.join(WORK, "%s-%d.trace" % (shape, count))
    if not os.path.exists(path):
        subprocess.run([MAKE, shape, path, str(count)], check=True)
    return path


def script_file(name, text):
    """Makes a trace from a script in the format of tests/trace/script.h."""
    path = os.path.join(WORK, name + ".trace")
    with open(path, "wb") as out:
        subprocess.run([os.path.join(os.path.dirname(TOOL), "tests/test_trace_maker"), "script"], input=text.encode(), stdout=out, check=True)
    return path


def report(name, *files):
    path = os.path.join(WORK, name + ".html")
    subprocess.run([TOOL, "report", *files, "-o", path], check=True)
    return path


def doctor_file():
    path = os.path.join(WORK, "doctor.json")
    with open(path, "w") as out:
        json.dump({"status": 2, "devices": 2, "areas": {"driver": "findings", "links": "not checked"}, "missing": {"nvml.state": "it cannot be opened",
            "gpu.0.mig": "it is old", "gpu.1.mig": "it is old", "gpu.2.mig": "it is new"}, "not_checked": [
            {"id": "mig", "area": "devices", "fact": "gpu.N.mig", "reason": "it is old", "cases": 2}, None,
            {"id": "mig-pending", "area": "devices", "fact": "gpu.N.mig", "reason": "it is old", "cases": 2}], "findings": [
            {"id": "note", "severity": "note", "area": "limits", "title": "a note", "devices": [], "evidence": {}, "why": "it is one", "fix": "", "fix_needs_root": False},
            {"id": "mig", "severity": "warning", "area": "devices", "title": "MIG is on", "devices": [1], "buses": ["0000:3b:00.0"], "evidence": {}, "why": "it is", "fix": ""},
            {"id": "acs", "severity": "error", "area": "peers", "title": "bridges send peers' bytes the long way", "pairs": [[0, 1]],
             "evidence": {"bridge.acs": "on </script>", "gpu.0.iommu": "DMA", "gpu.1.iommu": "DMA"}, "why": "ACS is on", "fix": "setpci -s 00:01.0 ECAP_ACS+6.w=0", "fix_needs_root": True}]}, out)
    return path


PEERS = os.path.join(RESULTS, "2026-11-28-2xH200-figures-p2p.json")
LANES = [os.path.join(RESULTS, name) for name in ("2026-11-28-2xH200-figures-lanes.json", "2026-11-21-4xH200-lanes.json")]


def everything():
    return report("all", trace_file("usual"), trace_file("slow"), PEERS, *LANES, doctor_file())


def results_of(path):
    with open(path) as file:
        return json.load(file)


PAINTED = """(() => { const out = {}; for (const view of app.views) { let worst = Infinity, n = 0;
  for (const canvas of view.section.querySelectorAll('.canvas canvas, .split canvas')) {
    if (canvas.offsetParent === null || canvas.width < 3) continue;
    const data = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer), seen = new Set();
    for (let i = 0; i < data.length && seen.size < 9; i += 3) seen.add(data[i]);
    worst = Math.min(worst, seen.size); n++; }
  out[view.id] = [n, n ? worst : 0]; } return out; })()"""
DRAW = "app.views.forEach(view => { view.near = true; view.redraw(); view.draw(); })"
COUNT = """(hex => { const n = parseInt(hex.slice(1), 16), want = [n >> 16, n >> 8 & 255, n & 255]; const c = lanes.canvas;
  const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let count = 0;
  for (let i = 0; i < d.length; i += 4) if (d[i] === want[0] && d[i + 1] === want[1] && d[i + 2] === want[2]) count++; return count; })"""


def opened(driver, path, **options):
    page = browser.Page(driver, **options)
    page.open(path)
    page.settle()
    return page


def finish(page, text):
    check(not page.run(r"/\[object|undefined|\bNaN\b|Infinity|^null$/m.test(document.body.innerText)"), text + ": text that is none")
    equal(page.run("app.errors"), [], text + ": views that cannot be drawn")
    equal(page.troubles(), [], text + ": troubles")
    page.close()


def window(page):
    return page.run("[app.from, app.to]")


def try_views(driver):
    page = opened(driver, everything())
    ids = page.run("app.views.map(view => view.id)")
    equal(sorted(ids), sorted(ALL_VIEWS), "the views")
    equal(page.run("[...document.querySelectorAll('nav a')].map(a => a.getAttribute('href').slice(1))"), ids, "the links to the views")
    page.run(DRAW)
    for view, (canvases, colours) in page.run(PAINTED).items():
        want = view in ("summary", "timeline", "memory", "transfers", "submits", "losses", "compare")
        check((canvases > 0) == want, "%s: %d canvases" % (view, canvases))
        check(not want or colours > 2, "%s: a canvas has %d colours" % (view, colours))
    equal(page.run("[...document.querySelectorAll('canvas')].filter(c => !c.getAttribute('aria-hidden') && !c.getAttribute('aria-label')).length"), 0, "canvases without a name")
    equal(page.run("document.querySelectorAll('#main [onclick], #main style').length"), 0, "handlers and styles in elements")
    for view in ids:  # each link in the head of the page
        page.run("document.querySelector('nav a[href=\"#%s\"]').click()" % view)
    text = page.run("document.getElementById('main').innerText")
    trips = [results_of(path)["round_trip"]["heddle_us"]["median"] for path in LANES]
    check(trips[1] > 1.05 * trips[0], "the launches and waits of these results are alike")
    for word in ("device 0", "halo", "CUDA_ERROR_ILLEGAL_ADDRESS", "✓ usable", "setpci -s 00:01.0", "%.2f × worse" % (trips[1] / trips[0]), "Rings"):
        check(word in text, "the page lacks " + word)
    check(page.run("document.querySelector('.finding h3').textContent").startswith("errorbridges"), "the doctor's error is not first")
    finish(page, "all views")


def file_times(path):
    out = []
    with open(path, "rb") as source:
        data = source.read()
    for at in range(0, len(data) - 63, 64):
        if data[at] == 6:  # SUBMIT
            when, lane, _, position = struct.unpack_from("<qIIQ", data, at + 8)
            out.append((lane, position, when - 1000000, struct.unpack_from("<Q", data, at + 40)[0]))
    return sorted(out)


def try_data(driver):
    path = trace_file("usual")
    page = opened(driver, report("data", path))
    rows = page.run("(t => Array.from(t.col('ops', 'lane'), (lane, i) => [lane, t.col('ops', 'position')[i], t.col('ops', 'submitted')[i], t.col('ops', 'bytes')[i]]))(trace())")
    shift = file_times(path)[0][2] - rows[0][2]
    equal([(a, b, c + shift, d) for a, b, c, d in sorted(map(tuple, rows))], file_times(path), "operations in the page")
    split = page.run("trace().info.devices.map((d, i) => [Array.from(trace().splitBetween(i, d.begin, d.end)), splitOf(d), d.end - d.begin])")
    for d, (pieces, stated, length) in enumerate(split):
        equal(pieces, stated, "device %d: the pieces' sums" % d)
        equal(sum(pieces), length, "device %d: the split's sum" % d)
    numbers = [None, 5, 5, 5, None, None, -3, 2**52 - 1, 1 - 2**52, 0, 2**31, 127, 128, 16383, 16384]
    packed, last, before, repeats = bytearray(), 0, "none", 0

    def put(number):
        while number > 127:
            packed.append(number & 127 | 128)
            number >>= 7
        packed.append(number)

    for number in numbers + ["end"]:
        if number == before:
            repeats += 1
            continue
        if repeats:
            put(1)
            put(repeats)
        before, repeats = number, 0
        if number is None:
            put(0)
        elif number != "end":
            step = number - last
            put((step * 2 if step >= 0 else -step * 2 - 1) + 2)
            last = number
    equal(page.run("Array.from(decodeNumbers(new Uint8Array(%s), new Float64Array(%d), NaN), x => Number.isNaN(x) ? null : x)" % (list(packed), len(numbers))), numbers, "numbers of a column")
    finish(page, "data")


def spot(page, expression):
    """Converts [x, y] on the timeline, the value of the expression, to a place on the page."""
    page.run("document.getElementById('lanes-scroll').scrollIntoView({block: 'center'})")
    page.settle()
    return page.run("(() => { const [x, y] = %s, b = lanes.canvas.getBoundingClientRect(); return [b.left + x, b.top + y - lanes.scroll]; })()" % expression)


def longest_gap(page, state):
    """A place inside the longest gap with this cause."""
    return spot(page, """(() => { const t = trace(), c = t.pieceCategories(), b = t.col('pieces', 'begin'); let best = -1, most = 0, device = 0;
      t.info.devices.forEach((_, d) => { const [f, e] = t.pieces(d); for (let i = f; i < e; i++) if (c[i] === %d && t.pieceEnd(d, i) - b[i] > most) { most = t.pieceEnd(d, i) - b[i]; best = i; device = d; } });
      setWindow(b[best] - most * 3, b[best] + most * 4); drawLanes();
      const row = lanes.rows.find(r => r.kind === 'strip' && r.device === device); return [xOf(b[best] + most / 2, lanes.scroller.clientWidth), row.y + 5]; })()""" % state)


def try_timeline_mouse(driver):
    page = opened(driver, everything())
    page.run(DRAW)
    before = page.run(COUNT + "(colour('mark'))")
    page.click(*longest_gap(page, 3))
    page.settle()
    details = page.run("document.getElementById('details').innerText")
    check("waits for another device" in details and "buffer “halo”" in details and "held up by" in details, "a gap's details: " + details[:300])
    check(page.run("app.selected.chain.length") > 1, "a gap has no chain")
    page.run("lanes.scroller.blur()")
    check(page.run(COUNT + "(colour('mark'))") > before + 100, "the chain is not drawn")
    page.click_on("#details ol.chain li:nth-child(2) button")
    equal(page.run("app.selected.kind"), "op", "a link of the chain")
    wanted = page.run("app.selected.op")
    page.click(*spot(page, "[xOf(trace().opTimes(app.selected.op)[0], lanes.scroller.clientWidth) + 3, lanes.byLane.get(trace().col('ops', 'lane')[app.selected.op]).y + 6]"))
    equal(page.run("app.selected && app.selected.op"), wanted, "a click on an operation")
    for button, test in (("in", lambda a, b: b[1] - b[0] < a[1] - a[0]), ("out", lambda a, b: b[1] - b[0] > a[1] - a[0]), ("earlier", lambda a, b: b[0] < a[0]),
                         ("later", lambda a, b: b[0] > a[0]), ("all", lambda a, b: b == page.run("[trace().begin, trace().end]"))):
        old = window(page)
        page.click_on("[data-do=%s]" % button)
        check(test(old, window(page)), "the button '%s': %s to %s" % (button, old, window(page)))
    x, y = spot(page, "[600, 20]")
    page.run("document.activeElement.blur()")
    old = window(page)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-240)
    page.settle()
    equal(window(page), old, "the wheel before the timeline is in use")
    x, y = spot(page, "[600, 20]")
    page.click(x, y)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-240)
    page.until("app.to - app.from < %f" % (old[1] - old[0]))
    old = window(page)
    page.drag(x, y, x - 200, y)
    check(window(page)[0] > old[0] and abs((window(page)[1] - window(page)[0]) - (old[1] - old[0])) < 2, "a drag: %s to %s" % (old, window(page)))
    old = window(page)
    page.drag(x, y, x + 100, y, modifiers=8)
    check(window(page)[1] - window(page)[0] < (old[1] - old[0]) / 3, "Shift and a drag: %s to %s" % (old, window(page)))
    rows = page.run("lanes.rows.length")
    page.click(*spot(page, "[30, lanes.rows[0].y + 5]"))
    check(page.run("lanes.rows.length") < rows, "a click on a device's name does not fold it")
    page.click_on("#critical")
    equal(page.run("lanes.critical && document.getElementById('critical').getAttribute('aria-pressed')"), "true", "the critical path's button")
    page.mouse("mouseMoved", *longest_gap(page, 4))
    page.until("!document.getElementById('tip').hidden && document.getElementById('tip').textContent.includes('waits for a transfer')")
    finish(page, "the timeline's mouse")


def try_timeline_keys(driver):
    page = opened(driver, everything())
    page.run("document.body.focus(); document.activeElement.blur()")
    for _ in range(80):  # only with Tab
        page.key("Tab")
        if page.run("document.activeElement.id") == "lanes-scroll":
            break
    equal(page.run("document.activeElement.id"), "lanes-scroll", "Tab reaches the timeline")
    page.key("ArrowRight")
    equal(page.run("app.selected.kind"), "piece", "the arrow selects a piece of the strip")
    first = page.run("app.selected.piece")
    page.key("ArrowRight")
    equal(page.run("app.selected.piece"), first + 1, "the next piece")
    page.key("ArrowLeft")
    equal(page.run("app.selected.piece"), first, "the piece before")
    page.key("ArrowDown")
    page.key("Enter")
    equal(page.run("app.selected.kind"), "op", "Enter in a lane's row")
    page.key("Enter")
    equal(page.run("document.activeElement.id"), "details", "Enter goes to the details")
    page.key("Tab")
    check(page.run("document.getElementById('details').contains(document.activeElement)"), "Tab goes into the details")
    page.run("lanes.scroller.focus()")
    page.key("ArrowUp")
    old = window(page)
    for key, test in (("+", lambda a, b: b[1] - b[0] < a[1] - a[0]), ("-", lambda a, b: b[1] - b[0] > a[1] - a[0]), ("+", lambda a, b: b[1] - b[0] < a[1] - a[0]),
                      ("Home", lambda a, b: b[0] == page.run("trace().begin")), ("End", lambda a, b: b[1] == page.run("trace().end")),
                      ("0", lambda a, b: b == page.run("[trace().begin, trace().end]"))):
        old = window(page)
        page.key(key)
        check(test(old, window(page)), "the key %s: %s to %s" % (key, old, window(page)))
    page.key("+")
    old = window(page)
    page.key("ArrowRight", modifiers=8)
    check(window(page)[0] > old[0], "Shift and an arrow")
    page.key("Escape")
    equal(page.run("app.selected"), None, "Escape")
    rows = page.run("lanes.rows.length")
    page.key("f")
    check(page.run("lanes.rows.length") != rows, "f does not fold")
    for _ in range(200):  # Tab leaves it, and reaches the end of the page
        page.key("Tab")
        if page.run("document.activeElement.id").startswith("order"):
            break
    check(page.run("document.activeElement.id").startswith("order"), "Tab does not reach the last view")
    finish(page, "the timeline's keys")


# In the longest gap nothing was submitted. In a shorter one, the work waited for memory.
CAUSES = """trace devices=1
lane 0.1
clock 0 at=0 own=0
op 0.1:1 launch at=0 span=5-1000 done=1001
alloc 1 at=4000 took=2990 bytes=1000 rungs=15 device=0
op 0.1:2 launch at=4002 span=4005-5000 done=5001
op 0.1:3 launch at=12000 span=12005-13000 done=13001
end at=13100
"""


def try_findings(driver):
    """Each finding leads to the longest gap of its cause, or to its operation."""
    gaps = 0
    for path in (everything(), report("lost", trace_file("lost")), report("script", script_file("causes", CAUSES))):
        page = opened(driver, path)
        found = page.run("findingGroups(trace()).flat().filter(hasPlace).map(f => [f.id, f.gap || null, f.op, f.title])")
        for details in page.run("[...document.querySelectorAll('#findings details')].map((d, i) => (d.open = true, i))"):
            page.settle()
        equal(page.run("document.querySelectorAll('[data-finding]').length"), len(found), "links to places of findings")
        check(len(found) > 0, "no finding has a way to the timeline")
        for i, (name, gap, op, title) in enumerate(found):
            page.run("select(null); setWindow(trace().begin, trace().end)")
            page.run("document.querySelectorAll('[data-finding]')[%d].click()" % i)
            check(page.run("app.selected !== null && app.selected.to > app.from && app.selected.from < app.to"), name + " does not show its place")
            equal(page.run("document.activeElement.id"), "lanes-scroll", name + ": the focus")
            if gap:
                gaps += 1
                equal(page.run("[app.selected.kind, app.selected.device, app.selected.from]"), ["piece", gap["device"], gap["begin"]], name + ": the gap")
                check(name == "idle-for-copy" or page.run("trace().pieceCategories()[app.selected.piece]") >= 2, name + ": the device is not idle there")
            else:
                equal(page.run("[app.selected.kind, app.selected.op]"), ["op", op], name + ": the operation")
        if path.endswith("script.html"):
            for name, words in (("memory-pauses", "idle: memory"), ("idle-nothing-submitted", "idle: nothing was submitted")):
                check(any(f[0] == name for f in found), "there is no " + name)
                page.run("document.querySelector('[data-finding=%s]').click()" % name)
                text = page.run("document.getElementById('details').innerText")
                check(words in text, "%s leads to: %s" % (name, text[:200]))
        finish(page, "findings")
    check(gaps > 2, "%d findings lead to a gap" % gaps)


# There are few samples of memory, and the amount changes between them.
SAMPLES = """trace devices=1
lane 0.1
clock 0 at=0 own=0
op 0.1:1 launch at=0 span=5-9900 done=9901
memory 0 at=100 use=10485760 held=67108864
alloc 1 at=1000 bytes=20971520 device=0
alloc 2 at=2000 bytes=31457280 device=0
free 9 at=3000 bytes=4194304 device=0
memory 0 at=5000 use=58720256 held=67108864 limit=67108864
alloc 3 at=7000 bytes=11534336 device=0
free 3 at=7500 device=0
free 2 at=8000 device=0
end at=10000
"""


def try_memory_samples(driver):
    """The curve of all buffers never lies below the stack of the buffers in the trace."""
    page = opened(driver, report("samples", script_file("samples", SAMPLES)))
    page.run(DRAW)
    rows = page.run("""(() => { const { columns, slots, all } = poolColumns(trace(), 'd0', trace().begin, trace().end, 990);
      return Array.from(all, (v, x) => [columns.slice(x * slots, (x + 1) * slots).reduce((a, b) => a + b, 0) / 2 ** 20, Number.isNaN(v) ? null : v / 2 ** 20]); })()""")
    check(all(v is None or v >= stack for stack, v in rows), "what is taken is below what buffers take")
    for at, want in ((5, [0, None]), (50, [0, 10]), (150, [20, 30]), (250, [50, 60]), (350, [50, 56]), (600, [50, 56]), (730, [61, 64]), (850, [20, 26])):
        equal(rows[at], want, "what is taken at %d: by buffers of the trace, and in all" % at)
    drawn = page.run("""(() => { const g = document.querySelector('#memory .canvas canvas').getContext('2d'), old = g.lineTo, bands = [], fill = g.fillRect, dotted = [];
      g.lineTo = (...a) => { if (String(g.getLineDash()) === '1.5,3') dotted.push(a); old.apply(g, a); }; g.fillRect = (...a) => { if (a[2] === 1.3) bands.push(a); fill.apply(g, a); };
      document.querySelector('#memory .canvas').redraw(); delete g.lineTo; delete g.fillRect;
      const top = new Map(bands.map(([x, y]) => [x, y])), highest = new Map(); for (const [x, y] of dotted) highest.set(x, Math.min(y, highest.get(x) ?? Infinity));
      return [dotted.length, [...highest].filter(([x, y]) => top.has(x) && y > top.get(x) + 0.01).length]; })()""")
    check(drawn[0] > 500, "the dotted line has %d points" % drawn[0])
    equal(drawn[1], 0, "points of the dotted line within the stack")
    page.run(OPEN)
    page.settle()
    moments = page.run("[...document.querySelectorAll('#memory details tbody')][0].innerText")
    check("56.0 MiB" in moments and "60.0 MiB" in moments, "the table of moments: " + moments)
    finish(page, "samples of memory")


def try_other_views(driver):
    page = opened(driver, everything())
    page.run(DRAW)
    page.click_on("#exact")
    rows = page.run("[...document.querySelectorAll('#matrix tbody tr')].map(r => [...r.querySelectorAll('td')].map(c => Number(c.textContent.replace(/,/g, '').replace('·', '0'))))")
    for d, row in enumerate(rows):
        equal(sum(row[:-4]), row[-4], "device %d: the causes' sum" % d)
        equal(row[-4] + row[-3] + row[-2], row[-1], "device %d: the row's sum" % d)
    x, y = page.place("#memory .canvas canvas")
    page.click(x + 50, y)
    check("scratch" in page.run("document.getElementById('holders').innerText"), "a click on memory has no holders")
    page.run("(() => { const s = document.getElementById('pool'); s.selectedIndex = 1; s.dispatchEvent(new Event('change')); })()")
    page.click_on("#peak")
    check("MiB" in page.run("document.getElementById('holders').innerText") or "GiB" in page.run("document.getElementById('holders').innerText"), "the peak has no holders")
    page.click_on("#peer-map button")
    check("atomic operations" in page.run("document.getElementById('pair').innerText"), "a click on a pair has no details")
    check(["it is old", "mig, mig-pending", "gpu.N.mig"] in page.run(
        "[...document.querySelectorAll('#doctor tr')].map(r => [...r.cells].map(c => c.textContent))"), "checks that lack a fact are not one row")
    check("gpu.N.iommu (2 times): DMA" in page.run("document.querySelector('#doctor pre').textContent"), "facts that are alike are not one line")
    check("Of device 1 (0000:3b:00.0)." in page.run("document.getElementById('doctor').innerText"), "a finding's device has no bus id")
    page.click_on("#doctor details:not(article details) > summary")
    rows = page.run("[...document.querySelectorAll('#doctor details:not(article details) tbody tr')].map(r => r.cells[0].textContent)")
    equal(rows, ["nvml.state", "gpu.N.mig (2 times)", "gpu.2.mig"], "missing facts that are alike are one row")
    page.run("(() => { const s = document.getElementById('peer-figure'); s.value = 'kernel_load'; s.dispatchEvent(new Event('change')); })()")
    loads = next(figure for figure in results_of(PEERS)["figures"] if figure["id"] == "kernel_load")
    load = "%d ns" % round(loads["values"][0][1])
    check(load in page.run("document.getElementById('peer-map').innerText"), "another figure of the pairs: no %s" % load)
    dot = page.run("(() => { const c = document.querySelector('#transfers .canvas canvas'); c.scrollIntoView({block: 'center'}); const b = c.getBoundingClientRect();"
                   " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, want = [0xe6, 0x9f, 0]; const s = c.width / b.width;"
                   " for (let y = c.height - 1; y >= 0; y--) for (let x = 0; x < c.width; x++) { const i = (y * c.width + x) * 4;"
                   " if (d[i] === want[0] && d[i + 1] === want[1] && d[i + 2] === want[2]) return [b.left + x / s, b.top + y / s]; } })()")
    check(dot is not None, "there is no dot of a transfer")
    if dot:
        page.click(*dot)
        check("of the peak of its path" in page.run("document.getElementById('transfer').innerText"), "a click on a transfer has no details")
    page.run("(() => { const s = document.getElementById('link'); s.selectedIndex = 1; s.dispatchEvent(new Event('change')); })()")
    for field in ("began", "done", "issued"):
        page.run("(() => { const s = document.getElementById('latency'); s.value = '%s'; s.dispatchEvent(new Event('change')); })()" % field)
        check("main (4100)" in page.run("document.querySelector('#submits table').innerText"), "submits to " + field)
    page.run("(() => { const s = document.getElementById('thread'); s.selectedIndex = 1; s.dispatchEvent(new Event('change')); })()")
    page.click_on("#losses .story button")
    equal(page.run("app.selected.kind"), "op", "a link in the story of a loss")
    page.run("(() => { const f = document.querySelector('input[type=search]'); f.value = 'heddle_threads p99'; f.dispatchEvent(new Event('input')); })()")
    equal(page.run("[...document.querySelectorAll('#bench1 tbody')].pop().rows.length > 0 && [...[...document.querySelectorAll('#bench1 tbody')].pop().rows].every(r => /heddle_threads.*p99/.test(r.cells[0].textContent))"), True, "the filter of figures")
    page.run("document.getElementById('order0').click()")
    for i in range(page.run("document.querySelectorAll('summary').length")):
        page.run("document.querySelectorAll('summary')[%d].click()" % i)
    page.settle()
    equal(page.run("[...document.querySelectorAll('details[open] > div')].filter(d => d.textContent === '').length"), 0, "tables beside charts that are empty")
    page.run(DRAW)
    page.run("(() => { const s = document.getElementById('run'); s.selectedIndex = 1; s.dispatchEvent(new Event('change')); })()")
    page.settle()
    equal(page.run("trace().name"), "slow-40.trace", "the other run")
    page.run(DRAW)
    check(all(colours > 2 for canvases, colours in page.run(PAINTED).values() if canvases), "the other run has empty canvases")
    finish(page, "the other views")


OPEN = "document.querySelectorAll('details').forEach(details => { details.open = true; if (details.refresh) details.refresh(); })"
LEFT_OUT = "[...document.querySelectorAll('#%s .left-out')].filter(e => e.textContent && !e.classList.contains('paper')).map(e => e.textContent)"


def try_limits(driver):
    """If a limit cuts a list, the page says so at this place, with the amount that is missing."""
    page = opened(driver, report("crowd", trace_file("crowd")))
    page.run("document.getElementById('critical').click(); document.getElementById('critical').click()")
    page.run(DRAW)
    for view in page.run("app.views.map(view => view.id)"):
        want = {"timeline": 2, "submits": 2, "losses": 1}.get(view, 0)
        equal(len(page.run(LEFT_OUT % view)), want, "crowd: what is left out of " + view)
    page.run("document.getElementById('critical').click()")
    page.run("setWindow(trace().begin, trace().end)")
    page.settle()
    page.run("selectOp(trace().col('critical', 'op')[5998], false)")
    page.run(OPEN)
    page.settle()
    gaps = page.run("trace().info.devices.reduce((n, _, d) => { const [f, e] = trace().pieces(d), c = trace().pieceCategories(); for (let i = f; i < e; i++) n += c[i] >= 2; return n; }, 0)")
    text = page.run(LEFT_OUT % "timeline")
    for want in ("6 more threads are not shown above; the tables below list them.", "8 more intervals are not shown above; the table below lists them.", "Operations of the critical path in view that are not drawn: 1,000. Zoom in.",
                 "5,799 more operations of the chain are neither listed nor drawn. Select the last one to go on.", "{:,} more rows are not shown.".format(gaps - 40)):
        check(want in text, "the timeline does not state: %s: %s" % (want, text))
    equal(len(page.run("lanes.rows.filter(row => row.text === '6 more threads are not shown')")), 1, "the row of threads that are missing")
    equal(page.run("lanes.rows.slice(-2).map(row => row.kind + ' ' + row.text)"), ["interval ", "head 8 more intervals are not shown"], "the row of intervals that are missing")
    equal(page.run("lanes.rows.filter(row => row.kind === 'interval').length"), 32, "rows of intervals")
    check(["data: batch", "40"] in page.run("[...document.querySelectorAll('#timeline tbody tr')].map(r => [...r.cells].slice(0, 2).map(c => c.textContent))"), "the table lacks intervals")
    equal(page.run("document.querySelectorAll('#details ol.chain li').length"), 12, "the chain's list")
    page.run("[...document.querySelectorAll('#details > button')].find(b => b.textContent === '188 more').click()")
    equal(page.run("document.querySelectorAll('#details ol.chain li').length"), 200, "the chain's list, unfolded")
    page.run("selectOp(Array.from(trace().col('ops', 'n_waits')).indexOf(50), true)")
    equal(page.run("document.querySelectorAll('#details ul li').length"), 40, "waits that are listed")
    check("10 more waits are not shown." in page.run(LEFT_OUT % "timeline"), "waits that are left out")
    check("92 more lanes are not drawn, since their rings were less full; the table has them." in page.run(LEFT_OUT % "submits"), "rings that are left out")
    check("1 operation lacks one of both times, and is not counted." in page.run(LEFT_OUT % "submits"), "operations without a time")
    check("38 more rows are not shown." in page.run(LEFT_OUT % "submits"), "rows that are left out")
    check("5 more losses have no story here; the table has them." in page.run(LEFT_OUT % "losses"), "losses that are left out")
    equal(page.run("document.querySelectorAll('#losses tbody')[0].rows.length"), 25, "the table of losses")
    check("4 more labels" in page.run("document.querySelector('#memory .legend').innerText"), "labels that share a colour")
    page.run("setWindow(trace().begin, trace().begin + 2e6)")
    page.settle()
    check(not any("critical path" in line for line in page.run(LEFT_OUT % "timeline")), "a part of the critical path that is drawn whole")
    page.run("beforePrint()")
    check("14 more rows of device 0 are not on paper." in page.run(LEFT_OUT % "lanes-paper"), "rows that are not on paper")
    check("38 more rows are not on paper." in page.run("[...document.querySelectorAll('.left-out.paper')].map(e => e.textContent)"), "rows of a table that are not on paper")
    page.run("afterPrint()")
    finish(page, "limits")
    page = opened(driver, report("wide-limits", trace_file("wide")))
    page.run("beforePrint()")
    check("32 devices are folded: their lanes are not on paper." in page.run(LEFT_OUT % "lanes-paper"), "devices that are folded on paper")
    check("1 device has no column, since nothing waited for it." in page.run(LEFT_OUT % "idle"), "devices that have no column")
    page.run("afterPrint()")
    finish(page, "limits of the wide one")


def try_alike(driver):
    page = opened(driver, report("alike", trace_file("wide")))
    ids = page.run("trace().info.findings.map(f => f.id)")
    check(len(set(ids)) < len(ids), "the trace has no findings that are alike")
    equal(page.run("document.querySelectorAll('#findings .finding').length"), len(set(ids)), "entries of findings")
    page.run("document.querySelectorAll('#findings details').forEach(details => { details.open = true; details.refresh(); })")
    equal(page.run("document.querySelectorAll('#findings [data-finding]').length"), len(ids), "ways to the place of a finding")
    page.run("[...document.querySelectorAll('#findings details button')].pop().click()")
    check(page.run("app.selected !== null"), "a finding that is alike does not show its place")
    finish(page, "alike findings")


def try_words(driver):
    """Each chart has a table or text that needs no colours and no mouse. For every click there is a key."""
    page = opened(driver, everything())
    page.run(DRAW)
    page.run(OPEN)
    page.settle()
    for view, heads in page.run("app.views.filter(v => v.section.querySelector('canvas[aria-label], #lanes-scroll')).map(v => [v.id, [...v.section.querySelectorAll('table')].map(t => t.rows.length)])"):
        check(len(heads) > 0 or view == "summary", view + ": a chart without a table")
        check(all(rows > 1 for rows in heads), "%s: a table without rows: %s" % (view, heads))
    check(page.run("[...document.querySelectorAll('.split canvas')].every(c => /compute [0-9.]+ %/.test(c.getAttribute('aria-label')))"), "bars without their figures in words")
    text = page.run("document.getElementById('main').innerText")
    for word in ("The lanes as a table", "exchange", "in use at its end", "asks the program to free", "median of peak", "submits that filled it", "p90"):
        check(word in text, "the tables lack " + word)
    page.run("document.querySelector('#memory canvas').focus()")
    page.run("(() => { const s = document.getElementById('pool'); s.selectedIndex = 1; s.dispatchEvent(new Event('change')); })()")
    check("moves memory" in page.run("document.getElementById('memory').innerText"), "the other pool's moves")
    page.run("document.querySelector('#memory canvas').focus()")
    outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
    page.key("ArrowRight")
    check(page.run("document.getElementById('holders').innerText").startswith("Holders at"), "an arrow in the memory lists no holders")
    equal(page.run("getComputedStyle(document.activeElement).outlineStyle"), "solid", "the focus of a chart is not seen (%s before a key)" % outline)
    first = page.run("document.querySelector('#holders h3').textContent")
    page.key("End")
    check(page.run("document.querySelector('#holders h3').textContent") != first, "End does not move the moment")
    page.run("document.querySelector('#transfers canvas').focus()")
    page.key("ArrowRight")
    first = page.run("document.getElementById('transfer').innerText")
    check("of the peak of its path" in first, "an arrow in the transfers has no details")
    page.key("ArrowRight")
    check(page.run("document.getElementById('transfer').innerText") != first, "the next transfer")
    page.key("Escape")
    equal(page.run("document.getElementById('transfer').innerText"), "", "Escape")
    equal(page.run("Array.from(movesOf(trace()).bytes).length"), page.run("transferCount(trace())"), "dots, and transfers of all paths")
    finish(page, "words")


def try_focus(driver):
    """Tab reaches each view, and the focused element is visible."""
    page = opened(driver, everything())
    views, seen, unseen = set(page.run("app.views.filter(v => v.section.querySelector('button, summary, select, input, [tabindex=\"0\"]')).map(v => v.id)")), set(), set()
    for _ in range(400):
        page.key("Tab")
        view, what, style = page.run("(e => [(e.closest('section') || e).id, e.tagName + ' ' + e.id, getComputedStyle(e).outlineStyle])(document.activeElement)")
        seen.add(view)
        if style == "none" and what.split()[0] != "BODY":
            unseen.add(what)
        if views <= seen:
            break
    equal(views - seen, set(), "views that Tab does not reach")
    equal(unseen, set(), "a focus that is not seen")
    finish(page, "the focus")


def try_themes(driver):
    for dark in (False, True):
        page = opened(driver, everything(), dark=dark)
        back = page.run("getComputedStyle(document.documentElement).backgroundColor")
        equal(page.run("document.documentElement.dataset.theme"), "dark" if dark else "light", "the system's theme")
        page.click_on("#theme")
        equal(page.run("document.documentElement.dataset.theme"), "light" if dark else "dark", "the other theme")
        check(page.run("getComputedStyle(document.documentElement).backgroundColor") != back, "the button of the theme does nothing")
        page.run(DRAW)
        check(all(colours > 2 for canvases, colours in page.run(PAINTED).values() if canvases), "empty canvases in the other theme")
        finish(page, "the theme " + ("dark" if dark else "light"))


def try_paper(driver):
    page = opened(driver, everything(), dark=True)
    data = page.paper()
    check(data.startswith(b"%PDF") and data.count(b"/Type /Page\n") + data.count(b"/Type /Page ") + data.count(b"/Type/Page") >= 4, "the PDF has few pages")
    equal(page.run("[app.printing, document.documentElement.dataset.theme]"), [False, "dark"], "after printing")
    if shutil.which("pdftotext"):
        text = subprocess.run(["pdftotext", "-", "-"], input=data, stdout=subprocess.PIPE, check=True).stdout.decode()
        for title in page.run("app.views.map(view => view.section.querySelector('h2').textContent)"):
            check(title in text, "paper lacks " + title)
        check("scratch" in text and "Holders at" in text, "paper lacks the holders")
    page.run("beforePrint()")
    page.call("Emulation.setEmulatedMedia", media="print")
    page.settle()
    equal(page.run("document.documentElement.dataset.theme"), "light", "paper's theme")
    check(page.run("document.querySelectorAll('#lanes-paper canvas').length") >= 4, "paper lacks the lanes")
    equal(page.run("document.querySelectorAll('#pools-paper canvas[aria-label]').length"), page.run("document.getElementById('pool').length - 1"), "other pools on paper")
    for view, (canvases, colours) in page.run(PAINTED).items():
        check(canvases == 0 or colours > 2, "%s is empty on paper" % view)
    check(page.run("Math.max(...[...document.querySelectorAll('#lanes-paper .canvas')].map(c => c.offsetHeight)) < 700"), "a picture is larger than a page")
    finish(page, "paper")


def try_phone(driver):
    page = opened(driver, everything(), width=390, height=800, scale=2, touch=True)
    page.run(DRAW)
    check(page.run("document.documentElement.scrollWidth") <= 390, "the page is wider than a phone: %d" % page.run("document.documentElement.scrollWidth"))
    x, y = spot(page, "[230, 20]")
    old = window(page)
    page.touch("touchStart", [(x - 20, y), (x + 20, y)])
    page.touch("touchMove", [(x - 60, y), (x + 60, y)])
    page.touch("touchEnd", [])
    page.until("app.to - app.from < %f" % ((old[1] - old[0]) * 0.6))
    old = window(page)
    page.touch("touchStart", [(x, y)])
    for by in (10, 30, 60):
        page.touch("touchMove", [(x - by, y)])
    page.touch("touchEnd", [])
    page.until("app.from > %f" % old[0])
    finish(page, "a phone")


def try_shapes(driver):
    for shape in ("empty", "idle", "one", "wide", "odd", "lost", "cut", "cupti"):
        page = opened(driver, report(shape, trace_file(shape)))
        page.run(DRAW)
        page.run("(() => { if (trace().count('ops') > 0) selectOp(trace().count('ops') - 1, true); })()")
        page.run("beforePrint(); afterPrint()")
        if shape == "odd":
            text = page.run("document.getElementById('main').innerText + document.getElementById('details').innerText")
            longest = "W" * 1199
            page.run("selectOp(1, true)")
            equal(page.run("document.getElementById('details').innerText").count(longest), 1, "the whole of a long name in its details")
            check("Heddle report" in page.run("document.title") and "broken" not in page.run("document.title"), "a name ran as a script")
            equal(page.run("trace().info.names.filter(n => n.includes('\\u202e')).map(n => trace().nameOf(trace().info.names.indexOf(n)).length - n.length)"), [2], "a name that turns what follows")
            check("</script><b>\"'& 🚀 card" in text and "<img src=x onerror=alert(1)>" in text, "odd names are not as they were")
            equal(page.run("trace().info.names.filter(n => n.startsWith('<!-- \\u2028')).length"), 1, "the odd label")
            equal(page.run("document.querySelectorAll('#main img, #main b b, body > b').length"), 0, "elements from names")
            check(page.run("document.documentElement.scrollWidth") <= 1280, "a long name makes the page wider")
        if shape == "empty":
            check("because the trace contains no operations" in page.run("document.getElementById('findings').innerText"), "an empty trace")
        if shape == "lost":
            check("has not come back" in page.run("document.getElementById('losses').innerText"), "a loss without an end")
        if shape == "cut":
            check("ends within a record" in page.run("document.getElementById('summary').innerText"), "a file that is cut")
        finish(page, "the shape " + shape)


def result_file(name, content):
    path = os.path.join(WORK, name + ".json")
    with open(path, "w") as out:
        json.dump(content, out)
    return path


def try_peers(driver):
    """The peers come from the map of the pairs, whatever the driver reports. Without pairs they come from the driver."""
    devices = [{"device": d, "name": "card", "bus_id": "0:%d" % d, "memory_bytes": 2**30, "numa_node": 0, "peers": [e for e in range(3) if e != d]} for d in range(3)]
    verdicts = {(0, 1): "corrupt", (0, 2): "usable", (1, 0): "slow", (1, 2): "refused", (2, 0): "refused", (2, 1): "refused"}
    pairs = [{"device": a, "owner": b, "verdict": verdict} for (a, b), verdict in verdicts.items()]
    for data, head, want in (({"benchmark": "p2p", "pairs": pairs}, "uses the memory of", ["device 2", "device 0", "none"]),
                             ({"options": []}, "reaches, as the driver reports", ["device 1, device 2", "device 0, device 2", "device 0, device 1"])):
        page = opened(driver, report("peers", result_file("peers", {**data, "machine": {"cpu": "one"}, "runtime": {"devices": devices}})))
        rows = page.run("[...document.querySelector('#machine table').rows].map(r => r.cells[4].textContent)")
        equal(rows, [head, *want], "peers in the machine")
        finish(page, "peers")


def try_odd_results(driver):
    """The page leaves out senseless values of a result, and shows the rest."""
    good = {"device": 0, "owner": 1, "verdict": "usable", "direct_bytes_per_s": 1e9}
    odd = [None, 3, "x", [], {}, {"device": 99999, "owner": -1}, {"device": 10**9, "owner": 0, "verdict": "usable"}, {"device": "0", "owner": 1}, {"device": 0.5, "owner": 1}]
    odd_lists = [None, 3, "x", {"a": 1}, [None, 3, "x", [], {}], [{"id": {"a": 1}, "text": None, "unit": 5, "values": [[None, 1], "x", None, 2]}], [{"values": {"a": 1}, "name": {"b": 2}, "peers": 7, "device": None}]]
    for i, some in enumerate(odd_lists):
        data = {"benchmark": "p2p", "pairs": [good, *odd], "machine": {"cpu": some}, "runtime": {"devices": some, "driver": some}, "links": some, "figures": some, "system": some, "goals": some}
        page = opened(driver, report("odd-p2p", result_file("odd-p2p", data), result_file("odd-again", data)))
        equal(page.run("[...document.querySelectorAll('#peer-map')].map(map => [map.rows.length, map.querySelectorAll('button').length])"), [[3, 1], [3, 1]], "odd %d: the map of the pairs" % i)
        check("9 pairs make no sense and are not shown." in page.run(LEFT_OUT % "peers"), "odd %d: pairs that are left out" % i)
        page.run("document.querySelector('#peer-map button').click()")
        page.run(OPEN)
        finish(page, "odd %d" % i)


def try_names(driver):
    """A name of 1200 characters takes a few lines of a table, and the page can show all of it."""
    for width in (1280, 390):
        page = opened(driver, report("odd", trace_file("odd")), width=width)
        page.run(OPEN)
        page.settle()
        rows = page.run("[...document.querySelectorAll('#main tr')].map(row => [row.offsetHeight, row.closest('section').id, row.textContent.slice(0, 40)]).sort((a, b) => b[0] - a[0])")
        check(rows[0][0] < (120 if width == 1280 else 400), "a row of %d pixels at %d: %s" % (rows[0][0], width, rows[0][1:]))
        check(page.run("[...document.querySelectorAll('#submits td[title]')].some(cell => cell.title.includes('W'.repeat(1199)))"), "the whole name is no title")
        finish(page, "names at %d" % width)


def try_runs(driver):
    """Keys choose the third run, and the list keeps the focus."""
    page = opened(driver, report("runs", trace_file("usual"), trace_file("slow"), trace_file("lost")))
    page.run("document.getElementById('run').focus()")
    for name in ("slow-40.trace", "lost-40.trace"):
        page.key("ArrowDown")
        equal(page.run("[trace().name, document.activeElement.id]"), [name, "run"], "the next run")
    page.key("ArrowUp")
    equal(page.run("[trace().name, document.activeElement.id]"), ["slow-40.trace", "run"], "the run before")
    rows = page.run("[...[...document.querySelectorAll('#compare table')].pop().rows].slice(1).map(row => [...row.cells].map(cell => cell.textContent))")
    sides = page.run("[app.traces[0], app.traces[1]].map(t => findingGroups(t).map(([f]) => [f.id, f.title]))")
    check(any(a[1] != "not found" and a[2] != "not found" for a in rows), "no finding is in both runs: %s" % rows)
    for row in rows:
        for side, cell in zip(sides, row[1:3]):
            title = dict(side).get(row[0])
            check(cell.endswith(title) if title else cell == "not found", "%s beside its run: %s, not %s" % (row[0], cell, title))
    finish(page, "runs")


def try_times(driver):
    """Times that differ by a microsecond look different, and their digits are in groups."""
    page = opened(driver, report("times", trace_file("usual")))
    equal(page.run("[10000000, 10010000, 999, 51300, 2900123456, -5000].map(ns => moment(trace(), trace().begin + ns))"),
          ["10.000 ms", "10.010 ms", "999 ns", "51.3 µs", "2.900123 s", "5.0 µs before the window"], "moments")
    equal(page.run("[[621842000, 200], [621842000, 2000], [0, 1e6], [1500, 500]].map(([ns, step]) => timeTick(ns, step))"), ["621,842,000 ns", "621,842 µs", "0 ms", "1,500 ns"], "ticks of an axis")
    finish(page, "times")


def try_later(driver):
    page = opened(driver, report("later", trace_file("later")))
    page.run(DRAW)
    page.run("selectOp(trace().col('ops', 'kernel').findIndex(k => k === trace().info.names.indexOf('scatter')), true)")
    details = page.run("document.getElementById('details').innerText")
    check("buffer “grid”" in details and "waits longer than necessary: the lane recorded its next event only behind later work" in details, "where an event stands: " + details[:400])
    equal(page.run("app.selected.chain.map(op => trace().col('ops', 'position')[op])"), [2, 4, 2], "the chain to the event")
    for moment, label in (("100000", "grid"), ("700000", "halo")):
        holders = page.run("(t => { const d = holdersTable(t, 'd0', t.begin + %s); return d.textContent; })(trace())" % moment)
        check(label in holders and "1 buffer" in holders and "40.0 MiB" in holders, "holders under a label: " + holders)
        check(page.run("moment(trace(), trace().col('memory', 'since')[0])") in holders, "the buffer is not since its allocation: " + holders)
    page.click_on("#peak")
    check("halo" in page.run("document.getElementById('holders').innerText"), "the label at the peak")
    check("of 62.0 MiB at most 22.0 MiB belong to buffers older than the trace" in page.run("document.getElementById('memory').innerText"), "what the labels lack")
    check("allocations and frees" in page.run("document.getElementById('summary').innerText"), "the tiles")
    equal(page.run("memoryCount(trace())"), 1, "allocations and frees")
    check("gone for 20.0 µs" in page.run("document.getElementById('losses').innerText"), "a loss whose return stands in front of it")
    finish(page, "later")


def try_ways(driver):
    """The page shows the same way of launches to the device as `heddle trace`."""
    path = trace_file("usual")
    analysis = json.loads(subprocess.run([TOOL, "trace", path, "--json"], check=True, stdout=subprocess.PIPE).stdout)
    page = opened(driver, report("ways", path))
    page.run(DRAW)
    tables = page.run("[...document.querySelectorAll('#submits table')].map(t => [...t.tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent)))")
    text = lambda ns: page.run("duration(%s)" % json.dumps(ns))
    keys = ["submit_to_issue_p50_ns", "submit_to_issue_p99_ns", "issue_to_begin_p50_ns", "issue_to_begin_p99_ns"]
    devices = [["device %d" % d["device"]] + [text(d[k]) for k in keys] + [page.run("significant(%r)" % d["queue_mean"]), str(d["queue_most"])] for d in analysis["devices"]]
    check(devices in tables, "the way to each device: %s in %s" % (devices, tables))
    kernels = sorted(([k["name"], str(k["launches"])] + [text(k[key]) for key in keys] for k in analysis["kernels"]), key=lambda row: -int(row[1]))
    check(len(kernels) == 2 and kernels in tables, "the way of each kernel: %s in %s" % (kernels, tables))
    check(all("–" not in row for row in devices + kernels), "a way that the trace has is missing: %s" % (devices + kernels))
    finish(page, "ways")


def try_files_without_traces(driver):
    lines = [os.path.join(RESULTS, name) for name in ("2026-11-21-1xH200-cupy.jsonl", "2026-11-21-1xH200-torch.jsonl")]
    names = [os.path.join(RESULTS, name) for name in sorted(os.listdir(RESULTS)) if name.endswith(".json") and not name.endswith(("-scaling.json", "-hosts.json"))]  # for tools/make-scaling and tools/make-hosts-table
    check(len(names) <= 21, "a few results are not tried")
    for n, files in enumerate([lines, names[:7], names[7:14], names[14:21]]):
        page = opened(driver, report("results%d" % n, *files))
        check(page.run("app.views.length") > 0 and page.run("document.querySelectorAll('#main table').length") > 0, "results %d: nothing is shown" % n)
        finish(page, "results %d" % n)


def try_million(driver):
    path = report("many", trace_file("many", 200000))  # five records for each operation
    started = time.monotonic()
    page = opened(driver, path)
    print("a million records opened and drawn in %.2f s; the page's own clock: %.2f s" % (time.monotonic() - started, page.run("app.ready") / 1000))
    page.run("setWindow(trace().begin, trace().end); drawLanes()")
    check(page.run(PAINTED)["timeline"][1] > 2, "a million records are not drawn")
    equal(page.run("trace().count('ops')"), 200000, "operations")
    equal(page.run("lanes.rows.filter(row => row.kind === 'interval').reduce((n, row) => n + row.to, 0) + lanes.intervalsBeyond"), 200000, "intervals")
    check(page.run("document.querySelectorAll('*').length") < 3000, "elements grow with the operations")
    page.run(DRAW)
    page.run("selectOp(150000, true)")
    page.run("selectItem(lanes.rows.find(row => row.kind === 'interval'), 50000, true)")
    finish(page, "a million records")


def try_ranges(driver):
    """With thousands of ranges, a frame draws only the distinguishable ones."""
    page = opened(driver, report("ranges", trace_file("usual", 8000)))
    page.run("setWindow(trace().begin, trace().end); drawLanes()")
    drawn = page.run("""(() => { const g = lanes.canvas.getContext('2d'), old = g.fillRect, width = lanes.scroller.clientWidth, out = [];
      for (const row of lanes.rows.filter(r => r.kind === 'range' && r.to > 4000)) { let n = 0; g.fillRect = (...a) => { n++; old.apply(g, a); };
        drawItems(g, trace(), row, width); out.push([row.to, n, width]); } delete g.fillRect; return out; })()""")
    check(len(drawn) > 0, "there are no rows of many ranges")
    for items, rectangles, width in drawn:
        check(width / 3 < rectangles < 1.5 * width, "%d ranges are %d rectangles in %d pixels" % (items, rectangles, width))
    finish(page, "ranges")


def try_items(driver):
    """Among rows without a text, the page outlines the one with the selected item. The next item is in the same row."""
    page = opened(driver, report("items", trace_file("overlap")))
    rows = page.run("lanes.rows.map((row, i) => [row.kind, row.text, i]).filter(([kind, text]) => kind === 'range' && text === '').map(([,, i]) => i)")
    equal(len(rows), 2, "rows of ranges within ranges")
    for i in rows:
        page.run("selectItem(lanes.rows[%d], 0, true)" % i)
        outlined = page.run("""(() => { const g = lanes.canvas.getContext('2d'), old = g.strokeRect, out = [];
          g.strokeRect = (...a) => out.push(lanes.rows.findIndex(r => r.y === a[1] + 1)); drawSelected(g, trace(), lanes.scroller.clientWidth); delete g.strokeRect; return out; })()""")
        equal(outlined, [i], "the row of the outline")
        equal(page.run("lanes.rows.filter(row => selectedIn(row) >= 0).map(row => lanes.rows.indexOf(row))"), [i], "the row of the selected item")
    finish(page, "items")


def interval_at(page, row, index):
    """A place inside an interval."""
    return spot(page, """(() => { const row = lanes.rows.find(r => r.id === 'interval %d'), i = %d; bringRow(row); drawLanes();
      return [xOf((row.begin[i] + row.end[i]) / 2, lanes.scroller.clientWidth), row.y + row.h / 2]; })()""" % (row, index))


def try_intervals(driver):
    """Intervals have rows below the threads and do not overlap there: drawn, by mouse and keys, as text, on paper."""
    path = trace_file("overlap")
    page = opened(driver, report("intervals", path))
    page.run(DRAW)
    listed = json.loads(subprocess.run([TOOL, "trace", path, "--json"], check=True, stdout=subprocess.PIPE).stdout)["intervals"]
    shown = page.run("(t => Array.from(t.col('intervals', 'begin'), (b, i) => [t.nameOf(t.col('intervals', 'name')[i]), ...['begin', 'end', 'began_by', 'ended_by'].map(f => t.col('intervals', f)[i])]))(trace())")
    equal(shown, [[i["name"], i["begin_ns"], i["end_ns"], i["began_by"], i["ended_by"]] for i in listed], "intervals of the page")
    equal(page.run("lanes.rows.filter(row => row.kind === 'interval').map(row => [row.text, Array.from(row.items)])"), [["intervals", [0, 3, 4]], ["", [1, 5]], ["", [2]]], "rows")
    equal(page.run("lanes.rows.findIndex(row => row.kind === 'interval') - lanes.rows.findLastIndex(row => row.kind === 'range')"), 2, "the rows' place, behind a head")
    names = page.run("""(() => { const g = lanes.canvas.getContext('2d'), old = g.fillText, out = []; g.fillText = (...a) => { out.push(a[0]); old.apply(g, a); };
      lanes.rows.filter(row => row.kind === 'interval').forEach(row => drawItems(g, trace(), row, lanes.scroller.clientWidth)); delete g.fillText; return out; })()""")
    equal(sorted(name[:3] for name in names), ["dat"] * 3 + ["req"] * 2, "names in boxes, cut where there is no room")
    for row, index, words in ((0, 1, ("data: batch", "200 µs", "began in main (4100)", "ended in thread 4101", "named by NVTX")), (2, 0, ("request", "30.0 µs", "thread thread 4101", "named by NVTX"))):
        page.click(*interval_at(page, row, index))
        details = page.run("document.getElementById('details').innerText").replace("\n", " ")
        for word in words:
            check(word in details, "a click on an interval lacks '%s': %s" % (word, details))
        equal(page.run("lanes.rows.filter(row => selectedIn(row) >= 0).map(row => row.id)"), ["interval %d" % row], "the row of an interval")
    page.mouse("mouseMoved", *interval_at(page, 1, 0))
    page.until("!document.getElementById('tip').hidden && document.getElementById('tip').textContent.startsWith('data: batch\\n200 µs')")
    page.run("select(null); lanes.scroller.focus(); lanes.row = 0")
    for _ in range(page.run("lanes.rows.length")):
        if page.run("lanes.rows[lanes.row].id") != "interval 1":
            page.key("ArrowDown")
    for key, index in (("ArrowRight", 0), ("ArrowRight", 1), ("ArrowLeft", 0)):
        page.key(key)
        equal(page.run("[app.selected.row.id, app.selected.index]"), ["interval 1", index], key + " in a row of intervals")
    page.key("Enter")
    equal(page.run("document.activeElement.id"), "details", "Enter on an interval")
    legend = page.run("[...document.querySelectorAll('#timeline .legend li')].map(e => e.textContent)")
    check("interval; colours are by name" in legend and "interval’s end, in another thread" in legend, "the legend: %s" % legend)
    page.run(OPEN)
    page.settle()
    rows = page.run("[...document.querySelectorAll('#timeline details')].filter(d => d.querySelector('summary').textContent === 'The intervals as a table').map(d => [...d.querySelectorAll('tr')].map(r => [...r.cells].map(c => c.textContent)))")
    equal(rows, [[["interval", "times", "sum", "longest"], ["data: batch", "3", "600 µs", "200 µs"], ["request", "3", "80.0 µs", "50.0 µs"]]], "the table of intervals")
    page.run("beforePrint()")
    equal(page.run("rowGroups().map(group => [group[0].text, group.length])"), [["device 0", 2], ["threads of the program", 5], ["ranges that may end in another thread", 4]], "parts on paper")
    equal(page.run("document.querySelectorAll('#lanes-paper canvas').length"), 6, "pictures on paper: a part's axis and rows")
    page.run("afterPrint()")
    finish(page, "intervals")


RANK = """trace devices=2 detail=full process=%d
device 0 name=first
device 1 name=second
lane 0.1 kind=program
lane 0.4 kind=claim
name kernel 1 axpy
clock 0 at=0 own=0
clock 1 at=0 own=0
rank %d of=3 at=0 run=7 offset=%d within=3
"""


def try_ranks(driver):
    """Traces of ranks appear together, on one clock; traces of other runs do not."""
    first = script_file("rank0", RANK % (100, 0, 0) + """op 0.1:1 launch at=0 issue=1 span=2-300 done=301
op 0.4:2 claim at=5 claimed=302 done=340
message send at=310-340 ready=302 peer=1 tag=7 bytes=4096 op=0.4:2
end at=400
""")
    # its clock shows 1000 us less
    second = script_file("rank1", RANK % (101, 1, 1000) + """op 0.4:2 claim at=-990 claimed=-990 done=-650
op 0.1:2 launch at=-980 issue=-648 span=-646--610 done=-609 wait=0.4:2
message recv at=-990--650 peer=0 tag=7 bytes=4096 op=0.4:2
end at=-600
""")
    page = opened(driver, report("ranks", second, first))
    ids = page.run("app.views.map(view => view.id)")
    check("ranks" in ids and "compare" not in ids, "the views of ranks: %s" % ids)
    equal(page.run("[...document.querySelectorAll('#run option')].map(e => e.textContent)"), ["rank 1: rank1.trace", "rank 0: rank0.trace"], "the choice of the rank")
    page.run(DRAW)
    check(page.run(PAINTED)["ranks"][1] > 3, "the chart of the ranks has few colours")
    rows = page.run("[...document.querySelectorAll('#ranks tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))")
    equal(rows, [["rank 1", "340 µs", "rank 0", "receive", "7", "1", "4.00 KiB", "–", "292 µs", "8.00 µs", "40.0 µs", "330 µs", "–"]], "the waits of ranks")
    text = page.run("document.getElementById('ranks').innerText")
    check("1 rank has no file here" in text and "at most 3.00 µs off" in text, "the notes about ranks: %s" % text)
    # the strips of both ranks lie under each other: a kernel of rank 0 at 100 us, none of rank 1
    equal(page.run("rankPlaces(app.ranks).map(place => place.trace.splitBetween(0, rankTime(place, 100000), rankTime(place, 101000))[0] > 0)"), [True, False], "the kernels at one time")
    finish(page, "ranks")
    page = opened(driver, report("no-ranks", first, first))
    check("both of rank 0" in page.run("document.getElementById('compare').innerText"), "the same rank twice")
    finish(page, "the same rank twice")


def try_cupti(driver):
    """Activities that CUPTI reports have their own rows, and lead to their operation."""
    page = opened(driver, report("cupti", trace_file("cupti")))
    equal(page.run("lanes.rows.filter(row => row.kind === 'activity').map(row => row.text + ' ' + row.to)"), ["CUPTI, stream 7 8", "CUPTI, stream 21 8"], "rows")
    for stream, want in ((7, "stencil_f32 on device 0, lane 0"), (21, "none: this may be work of another library")):
        page.run("selectItem(lanes.rows.find(row => row.text === 'CUPTI, stream %d'), 3, true)" % stream)
        check(want in page.run("document.getElementById('details').innerText"), "an activity of stream %d: %s" % (stream, page.run("document.getElementById('details').innerText")))
    page.run("selectItem(lanes.rows.find(row => row.text === 'CUPTI, stream 7'), 3, true)")
    page.click_on("#details dd button")
    equal(page.run("[app.selected.kind, app.selected.op]"), ["op", 3], "the operation of an activity")
    finish(page, "CUPTI")


def main():
    driver = browser.Browser(WORK)
    try:
        for name, trial in sorted(globals().items()):
            if name.startswith("try_") and (len(sys.argv) < 6 or name[4:] in sys.argv[5:]):
                print(name[4:])
                try:
                    trial(driver)
                except RuntimeError as error:
                    check(False, "%s: %s" % (name[4:], error))
    finally:
        driver.close()
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
