/* lanes.js - the timeline. Each device gets a band with a strip of its work and a row per lane.
 * Below are the rows of threads, and then the rows of intervals: ranges that may end in another
 * thread, and may overlap. The timeline also shows the chain of waits. It draws only visible items,
 * which it finds by a search in sorted columns. If a row contains more items than pixels, it draws
 * one bar for each column of pixels. */

const lanes = { rows: [], row: 0, critical: false, folded: new Set(), scroll: 0, height: 0, gutter: 150 };
const ROW = { strip: 34, lane: 19, range: 16, interval: 16, pause: 14, activity: 15, head: 20 };
const MARK = 8; /* pixels of the mark at the end of an interval that ends in another thread */
const THREADS = 64, INTERVAL_ROWS = 32, PATH = 5000; /* the most that are drawn */

/* ------------------------------------------------------------------------------------------------------------- rows */

function threadRows(t) {
    const rows = [], depths = new Map(), paused = new Set(t.col('pauses', 'thread'));
    const thread = t.col('ranges', 'thread'), depth = t.col('ranges', 'depth');
    for (let i = 0; i < thread.length; i++) depths.set(thread[i], Math.max(depths.get(thread[i]) || 0, depth[i] + 1));
    const threads = [...new Set([...depths.keys(), ...paused])].sort((a, b) => a - b);
    lanes.threadsBeyond = threads.splice(THREADS).length;
    if (threads.length > 0) rows.push({ kind: 'head', text: 'threads of the program', group: 'threads' });
    const byRow = new Map();
    for (let i = 0; i < thread.length; i++) {
        const key = thread[i] + ':' + depth[i];
        if (!byRow.has(key)) byRow.set(key, []);
        byRow.get(key).push(i);
    }
    const pauses = t.col('pauses', 'thread'), pausesOf = new Map();
    for (let i = 0; i < pauses.length; i++) {
        if (!pausesOf.has(pauses[i])) pausesOf.set(pauses[i], []);
        pausesOf.get(pauses[i]).push(i);
    }
    for (const number of threads) {
        for (let d = 0; d < (depths.get(number) || 0); d++) {
            rows.push(itemRow(t, 'range', 'ranges', number + ':' + d, byRow.get(number + ':' + d) || [], d === 0 ? t.threadName(number) : ''));
        }
        if (pausesOf.has(number)) {
            rows.push(itemRow(t, 'pause', 'pauses', number, pausesOf.get(number), depths.has(number) ? 'held up' : t.threadName(number) + ', held up'));
        }
    }
    if (lanes.threadsBeyond > 0) rows.push({ kind: 'head', text: count(lanes.threadsBeyond) + (lanes.threadsBeyond === 1 ? ' more thread is' : ' more threads are') + ' not shown' });
    return rows;
}

/* A row of items that are not neighbours in their table; the row sorts them by time. `id`
 * identifies the row among the rows of its kind, even after all rows were made again. */
function itemRow(t, kind, name, id, items, text) {
    const begin = t.col(name, 'begin'), end = t.col(name, 'end');
    const list = Int32Array.from(items).sort((a, b) => begin[a] - begin[b]);
    return { kind, table: name, id: kind + ' ' + id, text, items: list, begin: Float64Array.from(list, i => begin[i]), end: Float64Array.from(list, i => end[i]), from: 0, to: list.length };
}

/* The row of a lane. The stretches of a lane are neighbours in their table, sorted by time. */
function laneRow(t, lane, from, to) {
    return { kind: 'lane', text: t.laneName(lane), lane, device: t.deviceOfLane(lane), begin: t.col('stretches', 'began'), end: t.col('stretches', 'ended'), from, to };
}

/* Intervals are sorted by their begins. Each goes to the first row that is free at its begin. So
 * the number of rows is the most intervals that overlap at one time. */
function intervalRows(t) {
    const begin = t.col('intervals', 'begin'), end = t.col('intervals', 'end'), free = [], items = [];
    lanes.intervalsBeyond = 0;
    for (let i = 0; i < begin.length; i++) {
        let row = free.findIndex(time => time <= begin[i]);
        if (row < 0) row = free.length;
        if (row === INTERVAL_ROWS) {
            lanes.intervalsBeyond++;
            continue;
        }
        if (row === items.length) items.push([]);
        free[row] = Math.max(end[i], begin[i] + 1); /* two intervals without length do not share a place */
        items[row].push(i);
    }
    const rows = items.map((list, n) => itemRow(t, 'interval', 'intervals', n, list, n === 0 ? 'intervals' : ''));
    if (rows.length > 0) rows.unshift({ kind: 'head', text: 'ranges that may end in another thread', group: 'intervals' });
    if (lanes.intervalsBeyond > 0) rows.push({ kind: 'head', text: count(lanes.intervalsBeyond) + (lanes.intervalsBeyond === 1 ? ' more interval is' : ' more intervals are') + ' not shown' });
    return rows;
}

function endsElsewhere(t, interval) {
    return t.col('intervals', 'began_by')[interval] !== t.col('intervals', 'ended_by')[interval];
}

function activityRows(t, d) {
    const device = t.col('activities', 'device'), stream = t.col('activities', 'stream'), byStream = new Map();
    for (let i = 0; i < device.length; i++) {
        if (device[i] !== d) continue;
        if (!byStream.has(stream[i])) byStream.set(stream[i], []);
        byStream.get(stream[i]).push(i);
    }
    return [...byStream.entries()].sort((a, b) => a[0] - b[0]).map(([number, items]) =>
        ({ ...itemRow(t, 'activity', 'activities', d + ':' + number, items, 'CUPTI, stream ' + number), device: d }));
}

function makeRows() {
    const t = trace(), rows = [], lane = t.col('stretches', 'lane'), byDevice = new Map();
    for (let i = 0; i < lane.length;) {
        const end = upperBound(lane, lane[i], i, lane.length);
        const row = laneRow(t, lane[i], i, end);
        if (!byDevice.has(row.device)) byDevice.set(row.device, []);
        byDevice.get(row.device).push(row);
        i = end;
    }
    t.info.devices.forEach((device, d) => {
        rows.push({ kind: 'strip', device: d, text: 'device ' + d, name: device.name });
        if (!lanes.folded.has(d)) rows.push(...(byDevice.get(d) || []), ...activityRows(t, d));
    });
    rows.push(...threadRows(t), ...intervalRows(t));
    let y = 0;
    for (const row of rows) {
        row.y = y + (row.kind === 'strip' && y > 0 ? 8 : 2);
        row.h = ROW[row.kind];
        y = row.y + row.h;
    }
    lanes.rows = rows;
    lanes.height = y + 4;
    lanes.row = Math.min(lanes.row, Math.max(0, rows.length - 1));
    lanes.byLane = new Map(rows.filter(row => row.kind === 'lane').map(row => [row.lane, row]));
}

function laneSums(t) {
    let sums = t.cache.get('laneSums');
    if (!sums) {
        const began = t.col('stretches', 'began'), ended = t.col('stretches', 'ended');
        sums = new Float64Array(began.length + 1);
        for (let i = 0; i < began.length; i++) sums[i + 1] = sums[i] + ended[i] - began[i];
        t.cache.set('laneSums', sums);
    }
    return sums;
}

/* ---------------------------------------------------------------------------------------------------------- drawing */

function xOf(time, width) {
    return lanes.gutter + (time - app.from) / (app.to - app.from) * (width - lanes.gutter);
}

function timeOf(x, width) {
    return app.from + (x - lanes.gutter) / (width - lanes.gutter) * (app.to - app.from);
}

const OP_COLOUR = { 1: 0, 2: 1, 3: 0, 4: 0, 5: 0, 6: 9, 7: 5 };
const PAUSE_COLOUR = ['', '#e8da2b', '#8d94a0', '#009e73', '#25bd92', '#cc79a7', '#e69f00', '#d55e00'];
const OP_SHADE = { 3: '#4f8a8b', 4: '#3d4fa1', 5: '#6d5a9c' };

function stretchColour(op) {
    return OP_SHADE[op] || categoryColour(OP_COLOUR[op] === undefined ? 0 : OP_COLOUR[op]);
}

function itemColour(t, row, i) {
    if (row.kind === 'lane') return stretchColour(t.col('stretches', 'op')[i]);
    if (row.kind === 'activity') return t.col('activities', 'kind')[row.items[i]] === 2 ? categoryColour(1) : categoryColour(0);
    if (row.kind === 'pause') return PAUSE_COLOUR[t.col('pauses', 'kind')[row.items[i]]] || '#8d94a0';
    return STACK[t.col(row.table, 'name')[row.items[i]] % STACK.length] || STACK[0];
}

function itemText(t, row, i) {
    if (row.kind === 'lane') {
        const first = t.col('stretches', 'first_op')[i], count = t.col('stretches', 'last_op')[i] - first + 1;
        return (count > 1 ? count + ' × ' : '') + t.opName(first);
    }
    if (row.kind === 'activity') return t.nameOf(t.col('activities', 'name')[row.items[i]]) || ['', 'kernel', 'copy', 'fill'][t.col('activities', 'kind')[row.items[i]]] || '';
    if (row.kind === 'pause') return PAUSES[t.col('pauses', 'kind')[row.items[i]]] || '';
    return t.nameOf(t.col(row.table, 'name')[row.items[i]]);
}

/* Draws the items one by one. If a lane contains many, draws pixel columns instead, each by the
 * part of it that is covered. */
function drawItems(g, t, row, width) {
    let first = upperBound(row.begin, app.from, row.from, row.to);
    for (let back = 0; back < 4 && first > row.from && row.end[first - 1] > app.from; back++) first--;
    if (first > row.from) first--;
    const last = upperBound(row.begin, app.to, first, row.to);
    if (last - first > 1.5 * (width - lanes.gutter) && row.kind === 'lane') {
        drawColumns(g, t, row, width, first, last);
        return;
    }
    let filled = -1;
    for (let i = first; i < last; i++) {
        const x = Math.max(lanes.gutter, xOf(row.begin[i], width)), right = Math.min(width, xOf(row.end[i], width));
        if (right < lanes.gutter || right < x) continue;
        if (right <= filled) { /* skips to the last item that begins in the drawn part; activities may overlap, so they go one by one */
            if (row.kind !== 'activity') i = Math.max(i, upperBound(row.begin, timeOf(filled, width), i, last) - 2);
            continue;
        }
        const w = Math.max(1, right - x - (right - x > 3 ? 0.5 : 0)), hex = itemColour(t, row, i);
        g.fillStyle = hex;
        g.fillRect(x, row.y, w, row.h - 1);
        if (row.kind === 'lane' && t.col('stretches', 'flags')[i] & 2 && w > 3) { /* these times were not measured on the device */
            g.fillStyle = patternFill(g, hex, 'rising');
            g.fillRect(x, row.y, w, row.h - 1);
        }
        filled = x + w;
        const mark = row.kind === 'interval' && w > 2 * MARK && endsElsewhere(t, row.items[i]) ? MARK : 0;
        if (mark > 0 && right < width) { /* marks the end, if the end is visible */
            g.fillStyle = patternFill(g, hex, 'cross');
            g.fillRect(x + w - mark, row.y, mark, row.h - 1);
        }
        if (w > 26) {
            g.font = (row.h > 17 ? 11.5 : 10.5) + 'px system-ui, sans-serif';
            g.fillStyle = inkOn(hex);
            clippedText(g, itemText(t, row, i), x + 4, row.y + row.h / 2, w - 8 - mark);
        }
    }
}

function drawColumns(g, t, row, width, first, last) {
    const sums = laneSums(t), per = (app.to - app.from) / (width - lanes.gutter);
    const covered = (time, i) => i < first ? sums[first] : sums[i] + Math.min(Math.max(0, time - row.begin[i]), row.end[i] - row.begin[i]);
    let at = first - 1, before = covered(app.from, upperBound(row.begin, app.from, first, last) - 1);
    for (let x = lanes.gutter; x < width; x++) {
        const end = app.from + (x + 1 - lanes.gutter) * per;
        at = upperBound(row.begin, end, Math.max(first, at), last) - 1;
        const now = covered(end, at), share = Math.min(1, (now - before) / per);
        before = now;
        if (share > 0.002) {
            const h = Math.max(1.5, share * (row.h - 1));
            g.fillStyle = itemColour(t, row, Math.max(first, at));
            g.globalAlpha = 0.35;
            g.fillRect(x, row.y, 1, row.h - 1);
            g.globalAlpha = 1;
            g.fillRect(x, row.y + row.h - 1 - h, 1, h);
        }
    }
}

const columnSplit = new Float64Array(CATEGORIES), columnEnd = new Float64Array(CATEGORIES);

function drawStrip(g, t, row, width) {
    const d = row.device, [first, end] = t.pieces(d), begin = t.col('pieces', 'begin'), category = t.pieceCategories();
    if (first === end) return;
    const a = Math.max(first, upperBound(begin, app.from, first, end) - 1), b = upperBound(begin, app.to, first, end);
    if (b - a > (width - lanes.gutter)) {
        drawStripColumns(g, t, row, width);
        return;
    }
    for (let i = a; i < b; i++) {
        const x = Math.max(lanes.gutter, xOf(begin[i], width)), right = Math.min(width, xOf(t.pieceEnd(d, i), width));
        if (right <= x) continue;
        const c = category[i], hex = categoryColour(c), w = Math.max(0.6, right - x);
        g.fillStyle = w > 4 ? patternFill(g, hex, CATEGORY[c].pattern) : hex;
        g.fillRect(x, row.y, w, row.h);
        if (CATEGORY[c].letter && w > 13 && c !== 1) letterOn(g, CATEGORY[c].letter, x + w / 2, row.y + row.h / 2, hex);
    }
}

/* Each pixel column stacks the categories by their parts of the column's time. */
function drawStripColumns(g, t, row, width) {
    const per = (app.to - app.from) / (width - lanes.gutter);
    columnEnd.fill(0);
    t.addUpTo(row.device, app.from, 1, columnEnd);
    for (let x = lanes.gutter; x < width; x++) {
        columnSplit.set(columnEnd);
        columnEnd.fill(0);
        t.addUpTo(row.device, app.from + (x + 1 - lanes.gutter) * per, 1, columnEnd);
        let y = row.y + row.h;
        for (let c = 0; c < CATEGORIES; c++) {
            const h = (columnEnd[c] - columnSplit[c]) / per * row.h;
            if (h > 0.05) {
                g.fillStyle = categoryColour(c);
                g.fillRect(x, y - h, 1, h);
                y -= h;
            }
        }
    }
}

function drawRowLabel(g, row, index, width) {
    g.fillStyle = colour('back');
    g.fillRect(0, row.y - 2, lanes.gutter - 1, row.h + 3);
    if (index === lanes.row && !app.printing && document.activeElement === lanes.scroller) {
        g.fillStyle = colour('focus');
        g.fillRect(0, row.y, 3, row.h);
    }
    g.fillStyle = row.kind === 'strip' || row.kind === 'head' ? colour('text') : colour('soft');
    if (row.kind === 'strip') {
        g.font = 'bold 12px system-ui, sans-serif';
        clippedText(g, (lanes.folded.has(row.device) ? '▸ ' : '▾ ') + row.text, 6, row.y + 10, lanes.gutter - 12);
        g.font = '11px system-ui, sans-serif';
        g.fillStyle = colour('soft');
        clippedText(g, row.name, 18, row.y + 25, lanes.gutter - 22);
    } else {
        g.font = (row.kind === 'head' ? 'bold 12px' : '11px') + ' system-ui, sans-serif';
        clippedText(g, row.text, row.kind === 'head' ? 6 : 18, row.y + row.h / 2, row.kind === 'head' ? width : lanes.gutter - 22);
    }
}

function drawRows(g, t, rows, width, top, bottom) {
    for (const row of rows) {
        if (row.y > bottom || row.y + row.h < top) continue;
        if (row.kind === 'strip') {
            drawStrip(g, t, row, width);
        } else if (row.kind !== 'head') {
            g.fillStyle = colour('panel');
            g.fillRect(lanes.gutter, row.y, width - lanes.gutter, row.h - 1);
            drawItems(g, t, row, width);
        }
        drawRowLabel(g, row, lanes.rows.indexOf(row), width);
    }
}

/* The place of an operation: its row and its span in pixels. If the lane is folded, the row is the
 * strip of the device. */
function placeOf(t, op, width) {
    const lane = t.col('ops', 'lane')[op];
    const row = lanes.byLane.get(lane) || lanes.rows.find(r => r.kind === 'strip' && r.device === t.deviceOfLane(lane));
    if (!row) return null;
    const [from, to] = t.opTimes(op);
    return { row, x: xOf(from, width), right: xOf(to, width), y: row.y + row.h / 2 };
}

function drawArrow(g, from, to) {
    const bend = Math.max(18, Math.abs(to.y - from.y) * 0.25);
    g.beginPath();
    g.moveTo(from.x, from.y);
    g.bezierCurveTo(from.x + bend, from.y, to.x - bend, to.y, to.x, to.y);
    g.stroke();
    g.beginPath();
    g.moveTo(to.x, to.y);
    g.lineTo(to.x - 7, to.y - 4);
    g.lineTo(to.x - 7, to.y + 4);
    g.fill();
}

/* Outlines the operations of a chain, and draws an arrow from each operation to the one that it
 * held up. */
function drawChain(g, t, chain, width, hex) {
    g.save();
    g.beginPath();
    g.rect(lanes.gutter, -1e6, width - lanes.gutter, 2e6);
    g.clip();
    g.strokeStyle = g.fillStyle = hex;
    for (const [lineWidth, style] of [[4, colour('back')], [2, hex]]) {
        g.lineWidth = lineWidth;
        g.strokeStyle = g.fillStyle = style;
        chain.forEach((op, i) => {
            const place = placeOf(t, op, width);
            if (!place || (place.right < lanes.gutter - 400 && i > 0 && chain.length > 400)) return;
            g.strokeRect(place.x - 1, place.row.y - 1, Math.max(3, place.right - place.x + 2), place.row.h + 1);
            const holder = i + 1 < chain.length ? placeOf(t, chain[i + 1], width) : null;
            if (holder) drawArrow(g, { x: Math.min(holder.right, Math.max(holder.x, place.x)), y: holder.y }, { x: place.x, y: place.y });
        });
    }
    g.restore();
}

function drawMarks(g, t, width, height) {
    for (const loss of t.info.losses) {
        const x = xOf(loss.time, width);
        if (x < lanes.gutter || x > width) continue;
        g.strokeStyle = colour('mark');
        g.setLineDash([4, 3]);
        g.lineWidth = 1.5;
        g.beginPath();
        g.moveTo(x, 0);
        g.lineTo(x, height);
        g.stroke();
        g.setLineDash([]);
    }
}

/* The visible part of the critical path. The last operation comes first, as in a chain. One more
 * operation at each end serves the arrows. */
function pathInView(t) {
    const path = t.col('critical', 'op');
    let first = path.length, last = -1;
    for (let i = 0; i < path.length; i++) {
        const [from, to] = t.opTimes(path[i]);
        if (to < app.from || from > app.to) continue;
        first = Math.min(first, i);
        last = i;
    }
    lanes.pathBeyond = Math.max(0, last - first + 1 - PATH);
    return last < 0 ? [] : Array.from(path.slice(Math.max(0, first - 1), Math.min(first + PATH, last + 2))).reverse();
}

function drawSelected(g, t, width) {
    const s = app.selected;
    lanes.pathBeyond = 0;
    if (lanes.critical) drawChain(g, t, pathInView(t), width, colour('focus') || '#0b57d0');
    if (lanes.pathNote) lanes.pathNote.textContent = lanes.pathBeyond > 0 ? 'Operations of the critical path in view that are not drawn: ' + count(lanes.pathBeyond) + '. Zoom in.' : '';
    if (!s) return;
    if (s.kind === 'op') drawChain(g, t, s.chain, width, colour('mark'));
    if (s.kind === 'piece') {
        const row = lanes.rows.find(r => r.kind === 'strip' && r.device === s.device);
        const x = Math.max(lanes.gutter, xOf(s.from, width)), right = Math.min(width, xOf(s.to, width));
        if (s.chain.length > 0) drawChain(g, t, s.chain, width, colour('mark'));
        if (row && right >= lanes.gutter) {
            g.strokeStyle = colour('mark');
            g.lineWidth = 2.5;
            g.strokeRect(x, row.y - 1, Math.max(3, right - x), row.h + 2);
        }
    }
    if (s.kind === 'item') {
        g.strokeStyle = colour('mark');
        g.lineWidth = 2.5;
        const row = lanes.rows.find(r => r.id === s.row.id); /* a folded device shows no such row */
        if (row) g.strokeRect(xOf(s.from, width), row.y - 1, Math.max(3, xOf(s.to, width) - xOf(s.from, width)), row.h + 1);
    }
}

function drawTimeAxis(canvas, width) {
    const g = sized(canvas, width, 34), t = trace();
    const box = { x: lanes.gutter, y: 10, w: width - lanes.gutter, h: 4 };
    g.fillStyle = colour('panel');
    g.fillRect(box.x, 0, box.w, 7);
    g.fillStyle = colour('soft');
    const whole = t.end - t.begin, x = box.x + (app.from - t.begin) / whole * box.w;
    g.fillRect(x, 0, Math.max(3, (app.to - app.from) / whole * box.w), 7);
    timeAxis(g, box, app.from, app.to);
    g.font = '11px system-ui, sans-serif';
    g.fillStyle = colour('soft');
    clippedText(g, duration(app.to - app.from) + (lanes.gutter < 120 ? '' : ' in view'), 6, 22, lanes.gutter - 26);
}

function drawLanes() {
    const t = trace();
    if (!t || lanes.rows.length === 0) return;
    const width = lanes.scroller.clientWidth, view = Math.min(lanes.height, lanes.scroller.clientHeight);
    if (width === 0) return;
    lanes.gutter = width < 560 ? 84 : 170;
    drawTimeAxis(lanes.axis, width);
    const g = sized(lanes.canvas, width, view);
    lanes.canvas.style.height = view + 'px';
    lanes.scroll = lanes.scroller.scrollTop;
    g.save();
    g.translate(0, -lanes.scroll);
    drawRows(g, t, lanes.rows, width, lanes.scroll, lanes.scroll + view);
    drawMarks(g, t, width, lanes.height);
    drawSelected(g, t, width);
    if (lanes.drag && lanes.drag.select) {
        g.fillStyle = 'rgba(11,87,208,.25)';
        g.fillRect(Math.min(lanes.drag.x, lanes.drag.now), lanes.scroll, Math.abs(lanes.drag.now - lanes.drag.x), view);
    }
    g.restore();
    app.drawn = (app.drawn || 0) + 1;
}
