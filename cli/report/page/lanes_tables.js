/* lanes_tables.js - the timeline in words: its legend, tables of gaps, lanes, ranges, intervals and pauses; and the timeline on paper. */

const OPS_SHOWN = new Map([[3, 'fill'], [4, 'matrix product'], [5, 'call'], [7, 'claim']]);
const PAPER_PICTURE = 28, PAPER_PICTURES = 3; /* the most rows of a picture on paper; the most pictures of a device, of all threads, or of all intervals */

/* The legend of strips, lanes, pauses of threads, and intervals. It lists only colours that the
 * trace uses. */
function lanesLegend(t) {
    const ops = t.col('stretches', 'op'), paused = new Set(t.col('pauses', 'kind')), used = usedCategories([t]);
    return legend([
        ...CATEGORY.map((category, c) => ({ ...category, c, colour: () => categoryColour(c) })).filter(({ c }) => c < 2 || used.includes(c)),
        ...[...OPS_SHOWN].filter(([op]) => ops.includes(op)).map(([op, text]) => ({ text, colour: () => stretchColour(op) })),
        ...PAUSES.map((text, kind) => ({ text: 'thread ' + text, kind, colour: () => PAUSE_COLOUR[kind] })).filter(({ kind }) => kind > 0 && paused.has(kind)),
        ...intervalsLegend(t),
    ]);
}

function intervalsLegend(t) {
    const n = t.count('intervals'), item = { text: 'interval; colours are by name', colour: () => STACK[7] };
    let crosses = false;
    for (let i = 0; i < n && !crosses; i++) crosses = endsElsewhere(t, i);
    return [...(n > 0 ? [item] : []), ...(crosses ? [{ ...item, text: 'interval’s end, in another thread', pattern: 'cross' }] : [])];
}

function timelineTables(t) {
    const has = name => t.count(name) > 0;
    return [asTable(() => longestTable(t), 'The longest gaps as a table'), asTable(() => lanesTable(t), 'The lanes as a table'),
        has('ranges') ? asTable(() => rangesTable(t), 'The ranges as a table') : null,
        has('intervals') ? asTable(() => intervalsTable(t), 'The intervals as a table') : null, has('pauses') ? asTable(() => pausesTable(t), 'The pauses of threads as a table') : null].filter(Boolean);
}

/* The longest gaps of all devices. A trace may contain a million gaps, so this keeps only a few at
 * a time. */
function longestTable(t) {
    const begin = t.col('pieces', 'begin'), category = t.pieceCategories();
    let kept = [], gaps = 0, least = 0;
    const cut = () => {
        kept.sort((a, b) => b[0] - a[0]);
        kept = kept.slice(0, GAPS);
        if (kept.length === GAPS) least = kept[GAPS - 1][0];
    };
    t.info.devices.forEach((_, d) => {
        const [first, end] = t.pieces(d);
        for (let i = first; i < end; i++) {
            if (category[i] < 2) continue;
            const length = t.pieceEnd(d, i) - begin[i];
            gaps++;
            if (length > least) kept.push([length, d, i]);
            if (kept.length > 50 * GAPS) cut();
        }
    });
    cut();
    const op = t.col('pieces', 'op'), holder = t.col('pieces', 'holder');
    return table('', ['gap', 'device', 'from', 'length', 'held up', 'by'], kept.map(([length, d, i]) => [
        linkButton(CATEGORY[category[i]].text, () => {
            selectPiece(d, i, true);
            goTo('timeline');
        }), String(d), moment(t, begin[i]), duration(length), op[i] >= 0 ? opLine(t, op[i]) : '–', holder[i] >= 0 ? opLine(t, holder[i]) : '–']), GAPS, gaps);
}

function lanesTable(t) {
    const lane = t.col('stretches', 'lane'), began = t.col('stretches', 'began'), ended = t.col('stretches', 'ended'), sums = laneSums(t), rows = [];
    for (let i = 0; i < lane.length;) {
        const end = upperBound(lane, lane[i], i, lane.length), known = t.lanesByNumber.get(lane[i]), busy = sums[end] - sums[i];
        rows.push(['device ' + t.deviceOfLane(lane[i]) + ', ' + t.laneName(lane[i]), known ? count(known.n_ops) : '–', duration(busy),
            percent(busy / (t.end - t.begin)), moment(t, began[i]), moment(t, ended[end - 1])]);
        i = end;
    }
    return table('', ['lane', 'operations', 'ran for', 'part of the window', 'from', 'to'], rows);
}

/* Groups rows by key. Each group gets the number of its rows, their sum, and the longest. */
function sumsBy(begin, end, keyOf) {
    const by = new Map();
    for (let i = 0; i < begin.length; i++) {
        const key = keyOf(i), entry = by.get(key) || { first: i, count: 0, sum: 0, most: 0 }, took = Math.max(0, end[i] - begin[i]) || 0;
        entry.count++;
        entry.sum += took;
        entry.most = Math.max(entry.most, took);
        by.set(key, entry);
    }
    return [...by.values()].sort((a, b) => b.sum - a.sum);
}

function rangesTable(t) {
    const name = t.col('ranges', 'name'), thread = t.col('ranges', 'thread');
    return table('', ['range', 'thread', 'times', 'sum', 'longest'], sumsBy(t.col('ranges', 'begin'), t.col('ranges', 'end'), i => thread[i] + ' ' + name[i])
        .map(({ first, count: n, sum, most }) => [nameCell(t.nameOf(name[first]) || '(no name)'), t.threadName(thread[first]), count(n), duration(sum), duration(most)]));
}

function intervalsTable(t) {
    const name = t.col('intervals', 'name');
    return table('', ['interval', 'times', 'sum', 'longest'], sumsBy(t.col('intervals', 'begin'), t.col('intervals', 'end'), i => name[i])
        .map(({ first, count: n, sum, most }) => [nameCell(t.nameOf(name[first]) || '(no name)'), count(n), duration(sum), duration(most)]));
}

function pausesTable(t) {
    const kind = t.col('pauses', 'kind'), thread = t.col('pauses', 'thread'), device = t.col('pauses', 'device');
    return table('', ['pause', 'thread', 'device', 'times', 'sum', 'longest'],
        sumsBy(t.col('pauses', 'begin'), t.col('pauses', 'end'), i => thread[i] + ' ' + kind[i] + ' ' + device[i])
            .map(({ first, count: n, sum, most }) => [PAUSES[kind[first]] || '–', t.threadName(thread[first]), t.deviceName(device[first]), count(n), duration(sum), duration(most)]));
}

/* ------------------------------------------------------------------------------------------------------------- paper */

/* Groups the rows. A group begins with a device's strip, or with the head of the threads or of the
 * intervals. */
function rowGroups() {
    const groups = [];
    for (const row of lanes.rows) {
        if (row.kind === 'strip' || row.group) groups.push([]);
        groups[groups.length - 1].push(row);
    }
    return groups;
}

function lanesPicture(rows) {
    const t = trace(), width = 1000, axis = el('canvas'), canvas = el('canvas'), top = rows[0].y, last = rows[rows.length - 1];
    const height = last.y + last.h + 4 - top;
    drawTimeAxis(axis, width);
    const g = sized(canvas, width, height);
    g.translate(0, -top + 2);
    drawRows(g, t, rows, width, top, top + height);
    drawMarks(g, t, width, top + height);
    axis.style.height = 'auto';
    return el('div', { class: 'canvas' }, axis, canvas);
}

/* Prints the timeline as several pictures, each with a part of the rows. So the end of a page cuts
 * no picture. */
function printLanes(target) {
    const old = lanes.gutter, folded = lanes.folded.size;
    lanes.gutter = 170;
    target.replaceChildren(...rowGroups().flatMap(group => {
        const most = PAPER_PICTURE * PAPER_PICTURES, out = [];
        for (let i = 0; i < Math.min(group.length, most); i += PAPER_PICTURE) out.push(lanesPicture(group.slice(i, Math.min(i + PAPER_PICTURE, most))));
        const name = group[0].kind === 'strip' ? 'device ' + group[0].device : group[0].group;
        return [...out, leftOut(group.length - most, 'more row of ' + name + ' is not on paper.', 'more rows of ' + name + ' are not on paper.') || ''];
    }), leftOut(folded, 'device is folded: its lanes are not on paper.', 'devices are folded: their lanes are not on paper.') || '');
    lanes.gutter = old;
}
