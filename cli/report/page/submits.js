/* submits.js - how long operations took from their submit on, per thread, and how full the lanes' rings were. */

const RINGS = 6; /* the most rings that are drawn, the fullest ones first */
const RING_GAP = 12; /* a line joins two submits that are at most this many pixels apart */
const BINS = 256; /* eight for each doubling, from 64 ns on */

function binOf(ns) {
    return ns <= 64 ? 0 : Math.min(BINS - 1, Math.floor((Math.log2(ns) - 6) * 8));
}

function binStart(bin) {
    return 2 ** (6 + bin / 8);
}

function quantile(sorted, share) {
    return sorted.length === 0 ? NaN : sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1))];
}

/* For each thread, its times from submit to `field`, sorted. */
function latencies(t, field) {
    const key = 'latency' + field;
    if (t.cache.has(key)) return t.cache.get(key);
    const thread = t.col('ops', 'thread'), submitted = t.col('ops', 'submitted'), until = t.col('ops', field), lists = new Map();
    for (let i = 0; i < thread.length; i++) {
        const ns = until[i] - submitted[i];
        if (!(ns >= 0)) continue;
        if (!lists.has(thread[i])) lists.set(thread[i], []);
        lists.get(thread[i]).push(ns);
    }
    const made = [...lists.entries()].map(([number, list]) => {
        const sorted = Float64Array.from(list).sort(), bins = new Float64Array(BINS);
        for (const ns of sorted) bins[binOf(ns)]++;
        return { thread: number, sorted, bins };
    }).sort((a, b) => b.sorted.length - a.sorted.length);
    t.cache.set(key, made);
    return made;
}

function drawHistogram(g, width, height, view) {
    const t = trace(), box = { x: 62, y: 20, w: width - 76, h: height - 46 };
    const lists = latencies(t, view.field).filter(list => view.thread === null || list.thread === view.thread), bins = new Float64Array(BINS);
    for (const list of lists) list.bins.forEach((count, i) => { bins[i] += count; });
    const first = Math.max(0, bins.findIndex(c => c > 0) - 1);
    let last = BINS - 1;
    while (last > first + 4 && bins[last] === 0) last--;
    const most = Math.max(...bins, 1) * 1.3, x = ns => box.x + (Math.log2(Math.max(ns, 1)) * 8 - 48 - first) / (last + 1 - first) * box.w;
    verticalAxis(g, box, steps(0, most, 4).values.map(v => [v, box.y + box.h * (1 - v / most)]), v => v >= 1e4 ? v / 1e3 + ' k' : String(Math.round(v)), 'operations');
    const marks = [], low = binStart(first), high = binStart(last + 1);
    if (high < low * 12) for (const v of steps(low, high, 7).values) marks.push([v, x(v)]);
    else for (let p = 2; p < 11; p++) for (const f of [1, 2, 5]) if (x(f * 10 ** p) >= box.x && x(f * 10 ** p) <= box.x + box.w) marks.push([f * 10 ** p, x(f * 10 ** p)]);
    horizontalAxis(g, box, marks, duration);
    g.fillStyle = categoryColour(0);
    for (let i = first; i <= last; i++) {
        const h = bins[i] / most * box.h, left = x(binStart(i)), right = x(binStart(i + 1));
        if (h > 0) g.fillRect(left, box.y + box.h - Math.max(1, h), Math.max(1, right - left - 1), Math.max(1, h));
    }
    const all = lists.length === 1 ? lists[0].sorted : Float64Array.from(lists.flatMap(list => Array.from(list.sorted))).sort();
    let row = 0, right = -Infinity;
    for (const [name, share] of [['median', 0.5], ['p99', 0.99], ['longest', 1]]) {
        const value = quantile(all, share);
        if (Number.isNaN(value)) continue;
        const px = Math.min(box.x + box.w, Math.max(box.x, x(value))), text = name + ' ' + duration(value);
        g.fillStyle = colour('mark');
        g.fillRect(px - 0.75, box.y, 1.5, box.h);
        const w = g.measureText(text).width, at = px + 5 + w > width ? px - w - 5 : px + 5;
        row = at < right ? row + 1 : 0;
        g.fillStyle = colour('text');
        g.fillText(text, at, box.y + 8 + row * 14);
        right = at + w + 8;
    }
}

/* The lanes whose rings were fullest. */
function ringLanes(t) {
    if (t.cache.has('rings')) return t.cache.get('rings');
    const made = t.info.lanes.filter(lane => lane.slots > 0 && lane.n_ops > 0).map(lane => {
        const ring = t.col('ops', 'ring'), submitted = t.col('ops', 'submitted');
        let most = 0, full = 0;
        for (let i = lane.first_op; i < lane.first_op + lane.n_ops; i++) {
            if (Number.isNaN(submitted[i])) continue;
            most = Math.max(most, ring[i]);
            if (ring[i] >= lane.slots) full++;
        }
        return { lane, most, full };
    }).sort((a, b) => b.most / b.lane.slots - a.most / a.lane.slots);
    t.cache.set('rings', made);
    return made;
}

function drawRings(g, width, height) {
    const t = trace(), box = { x: 62, y: 20, w: width - 76, h: height - 46 }, ring = t.col('ops', 'ring'), submitted = t.col('ops', 'submitted');
    const fullest = Math.max(0, ...ringLanes(t).slice(0, 1).map(({ lane, most }) => most / lane.slots)), top = [0.01, 0.02, 0.05, 0.1, 0.25, 0.5].find(v => fullest < v) || 1;
    verticalAxis(g, box, [0, 0.25, 0.5, 0.75, 1].map(v => [v * top, box.y + box.h * (1 - v)]), v => Number((v * 100).toPrecision(3)) + ' %', 'of the ring');
    timeAxis(g, box, app.from, app.to);
    const w = Math.floor(box.w);
    ringLanes(t).slice(0, RINGS).forEach(({ lane }, s) => {
        const most = new Float64Array(w);
        for (let i = lane.first_op; i < lane.first_op + lane.n_ops; i++) {
            const x = Math.floor((submitted[i] - app.from) / (app.to - app.from) * w);
            if (x >= 0 && x < w) most[x] = Math.max(most[x], ring[i] / lane.slots);
        }
        g.strokeStyle = STACK[s];
        g.lineWidth = 1.5;
        g.setLineDash([[], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3]][s]);
        g.beginPath();
        let before = -Infinity; /* a line over a longer time would show values that nobody measured */
        for (let x = 0; x < w; x++) {
            if (most[x] === 0) continue;
            const y = box.y + box.h * (1 - Math.min(1, most[x] / top));
            if (x - before <= RING_GAP) g.lineTo(box.x + x, y);
            else g.moveTo(box.x + x, y);
            g.fillStyle = STACK[s];
            g.fillRect(box.x + x - 1.5, y - 1.5, 3, 3);
            before = x;
        }
        g.stroke();
        g.setLineDash([]);
    });
}

function latencyTable(t, field) {
    return table('', ['thread', 'operations', 'shortest', 'median', 'p90', 'p99', 'longest'], latencies(t, field).map(list => [t.threadName(list.thread),
        list.sorted.length.toLocaleString('en-US'), ...[0, 0.5, 0.9, 0.99].map(share => duration(quantile(list.sorted, share))), duration(quantile(list.sorted, 1))]), 40);
}

/* Figures of each device's launches. If the queue is often empty, the device may run out of
 * work. */
function wayTable(t) {
    return table('The times of launches on their way to each device, and the number of queued operations: submitted and not ended', ['device', 'submit to the driver, median', 'p99',
        'driver to begin, median', 'p99', 'queued, mean', 'most'], t.info.devices.map((device, d) => ['device ' + d,
        ...[device.issue_p50, device.issue_p99, device.run_p50, device.run_p99].map(duration), significant(device.queue_mean), count(device.queue_most)]));
}

/* The same figures by kernel. Kernels with the most launches come first. */
function kernelWayTable(t) {
    const launches = t.info.launches.slice().sort((a, b) => b.count - a.count);
    return launches.length === 0 ? null : table('The times of each kernel’s launches on their way to the device, including their waits', ['kernel', 'launches', 'submit to the driver, median', 'p99', 'driver to begin, median', 'p99'],
        launches.map(l => [nameCell(t.nameOf(l.kernel) || '(no name)'), count(l.count), ...[l.issue_p50, l.issue_p99, l.run_p50, l.run_p99].map(duration)]), 40);
}

const LATENCIES = [['issued', 'submit to the driver'], ['began', 'submit to the begin on the device'], ['done', 'submit to the time when the host saw the end']];

function buildSubmits(body) {
    const t = trace(), view = { field: 'issued', thread: null }, threads = el('div');
    const histogram = chart('Histogram of the time after the submit', 240, (g, width, height) => drawHistogram(g, width, height, view));
    const fill = chart('How full the rings of lanes were', 200, drawRings);
    const showThreads = () => {
        const seen = latencies(t, view.field).reduce((sum, list) => sum + list.sorted.length, 0);
        threads.replaceChildren(latencyTable(t, view.field), leftOut(t.count('ops') - seen, 'operation lacks one of both times, and is not counted.', 'operations lack one of both times, and are not counted.') || '');
    };
    const which = el('select', { id: 'latency', on: { change: () => {
        view.field = which.value;
        showThreads();
        histogram.redraw();
    } } }, LATENCIES.map(([field, text]) => el('option', { value: field }, text)));
    const numbers = [...new Set(t.col('ops', 'thread'))].filter(number => !Number.isNaN(number)).sort((a, b) => a - b);
    const who = el('select', { id: 'thread', on: { change: () => {
        view.thread = who.selectedIndex === 0 ? null : numbers[who.selectedIndex - 1];
        histogram.redraw();
    } } }, el('option', null, 'all threads'), numbers.map(number => el('option', null, t.threadName(number))));
    showThreads();
    const rings = ringLanes(t), ringName = lane => 'device ' + t.deviceOfLane(lane.lane) + ', ' + t.laneName(lane.lane);
    add(body, el('div', { class: 'bar' }, el('label', { for: 'latency' }, 'From'), which, el('label', { for: 'thread' }, 'of'), who), histogram, threads, wayTable(t), kernelWayTable(t),
        el('h3', null, 'Rings'), el('p', { class: 'quiet' }, 'The share of a lane’s ring that unfinished work takes at each submit. Each pixel shows the highest share.'), fill, legend(rings.slice(0, RINGS).map(({ lane }, s) => ({ text: ringName(lane), letter: String(s + 1), colour: () => STACK[s] }))),
        leftOut(rings.length - RINGS, 'more lane is not drawn, since its ring was less full; the table has it.',
            'more lanes are not drawn, since their rings were less full; the table has them.'),
        asTable(() => table('', ['lane', 'slots', 'most taken', 'submits that filled it'], rings.map(({ lane, most, full }) =>
            [ringName(lane), String(lane.slots), most + ' (' + percent(most / lane.slots) + ')', full.toLocaleString('en-US')]), 60)));
    return () => {
        histogram.redraw();
        fill.redraw();
    };
}
