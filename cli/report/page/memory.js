/* memory.js - memory over time, stacked by label, with the held memory and the limit; the holders
 * at a chosen time. */

const STACKED = 8; /* labels with a colour of their own; the others share the last one */

/* The pools with memory in the trace: each device, the host's pinned memory, unified memory. */
function poolsOf(t) {
    const kind = t.col('memory', 'kind'), device = t.col('memory', 'device'), found = new Set();
    for (let i = 0; i < kind.length; i++) found.add(kind[i] === 0 ? 'd' + device[i] : kind[i] === 1 ? 'pinned' : 'unified');
    const of = t.col('figures', 'device'), used = t.col('figures', 'in_use'), held = t.col('figures', 'held');
    for (let i = 0; i < of.length; i++) if ((used[i] > 0 || held[i] > 0) && of[i] < t.info.devices.length) found.add('d' + of[i]);
    const name = id => id === 'pinned' ? 'pinned memory' : id === 'unified' ? 'unified memory' : 'device ' + id.slice(1);
    return [...found].sort((a, b) => a.length - b.length || (a < b ? -1 : 1)).map(id => ({ id, text: name(id) }));
}

/* The events of a pool, in order of time, and its labels by their largest sum. */
function poolEvents(t, id) {
    const key = 'pool' + id;
    if (t.cache.has(key)) return t.cache.get(key);
    const kind = t.col('memory', 'kind'), device = t.col('memory', 'device'), label = t.col('memory', 'label');
    const isAlloc = t.col('memory', 'is_alloc'), bytes = t.col('memory', 'bytes'), flags = t.col('memory', 'flags');
    const events = [], now = new Map(), most = new Map();
    for (let i = 0; i < kind.length; i++) {
        const of = kind[i] === 0 ? 'd' + device[i] : kind[i] === 1 ? 'pinned' : 'unified';
        if (of !== id || !(flags[i] & 1)) continue; /* a failed allocation, and a buffer older than the trace, hold nothing here */
        events.push(i);
        const sum = (now.get(label[i]) || 0) + (isAlloc[i] ? bytes[i] : -bytes[i]);
        now.set(label[i], sum);
        if (sum > (most.get(label[i]) || 0)) most.set(label[i], sum);
    }
    const labels = [...most.entries()].sort((a, b) => b[1] - a[1]).map(([index]) => index);
    const made = { events: Int32Array.from(events), labels, slot: new Map(labels.map((index, i) => [index, Math.min(i, STACKED)])) };
    t.cache.set(key, made);
    return made;
}

function labelName(t, index) {
    return index >= 0 ? t.nameOf(index) || '(no label)' : '(no label)';
}

/* The bytes that a device's figures count beyond the allocations in the trace. A list of [time,
 * bytes, limit], each valid until the next time. When a buffer that is older than the trace is
 * freed, its bytes leave the rest. */
function poolRests(t, id) {
    if (t.cache.has('rests' + id)) return t.cache.get('rests' + id);
    const figures = figuresOf(t, id), at = t.col('figures', 'time'), used = t.col('figures', 'in_use'), limit = t.col('figures', 'limit'), time = t.col('memory', 'time'), kind = t.col('memory', 'kind');
    const device = t.col('memory', 'device'), isAlloc = t.col('memory', 'is_alloc'), bytes = t.col('memory', 'bytes'), flags = t.col('memory', 'flags');
    const rests = [];
    let seen = 0, row = 0;
    const upTo = end => {
        for (; row < time.length && time[row] <= end; row++) {
            if (kind[row] !== 0 || id !== 'd' + device[row]) continue;
            if (flags[row] & 1) seen += isAlloc[row] ? bytes[row] : -bytes[row];
            else if (!isAlloc[row] && !(flags[row] & 2) && rests.length > 0) rests.push([time[row], Math.max(0, rests[rests.length - 1][1] - bytes[row]), rests[rests.length - 1][2]]);
        }
    };
    for (const i of figures) {
        upTo(at[i]);
        rests.push([at[i], Math.max(0, used[i] - seen), limit[i] || Infinity]);
    }
    upTo(Infinity);
    t.cache.set('rests' + id, rests);
    return rests;
}

/* For each pixel column, the sums by slot at the time when their total was largest. `all`: the
 * largest total with the rest (poolRests); NaN before the first figure. `ends`: the total with the
 * rest at the end of the column. */
function poolColumns(t, id, from, to, width) {
    const { events, slot } = poolEvents(t, id), slots = STACKED + 1, sums = new Float64Array(slots), columns = new Float64Array(width * slots);
    const rests = poolRests(t, id), all = new Float64Array(width).fill(NaN), ends = new Float64Array(width).fill(NaN);
    const time = t.col('memory', 'time'), isAlloc = t.col('memory', 'is_alloc'), bytes = t.col('memory', 'bytes'), label = t.col('memory', 'label');
    let total = 0, rest = NaN, limit = Infinity, best = -1, e = 0, r = 0, column = 0, top = 0;
    const taken = () => Math.max(total, Math.min(total + rest, limit)); /* a sum above the limit shows that the rest shrank since the figure */
    const keep = () => {
        if (!(taken() <= all[column])) all[column] = taken();
        if (total > best) {
            best = total;
            columns.set(sums, column * slots);
        }
    };
    const apply = i => {
        const by = isAlloc[i] ? bytes[i] : -bytes[i];
        sums[slot.get(label[i]) ?? STACKED] += by;
        total += by;
    };
    /* events at the time of a figure come before the figure, as in poolRests */
    const next = end => {
        const row = e < events.length ? time[events[e]] : Infinity, figure = r < rests.length ? rests[r][0] : Infinity;
        if (Math.min(row, figure) >= end) return false;
        if (row <= figure) apply(events[e++]);
        else [, rest, limit] = rests[r++];
        return true;
    };
    while (next(from));
    for (column = 0; column < width; column++) {
        const end = from + (column + 1) / width * (to - from);
        best = -1;
        keep();
        while (next(end)) keep();
        ends[column] = taken();
        top = Math.max(top, best, Number.isNaN(all[column]) ? 0 : all[column]);
    }
    return { columns, slots, top, all, ends };
}

function figuresOf(t, id) {
    if (!t.cache.has('figures' + id)) {
        const device = t.col('figures', 'device'), list = [];
        for (let i = 0; i < device.length; i++) if (id === 'd' + device[i]) list.push(i);
        t.cache.set('figures' + id, list);
    }
    return t.cache.get('figures' + id);
}

function drawStepLine(g, t, box, list, values, y, from, to) {
    const time = t.col('figures', 'time');
    g.beginPath();
    list.forEach((i, n) => {
        const x = Math.min(box.x + box.w, Math.max(box.x, box.x + (time[i] - from) / (to - from) * box.w));
        const end = n + 1 < list.length ? time[list[n + 1]] : to;
        const right = Math.min(box.x + box.w, Math.max(box.x, box.x + (end - from) / (to - from) * box.w));
        if (n === 0) g.moveTo(x, y(values[i]));
        else g.lineTo(x, y(values[i]));
        g.lineTo(right, y(values[i]));
    });
    g.stroke();
}

/* Draws a line through one value for each pixel column. Skips columns with an unknown value. */
function drawColumnLine(g, box, values, y) {
    g.beginPath();
    for (let x = 0, drawn = false; x < values.length; x++) {
        if (Number.isNaN(values[x])) continue;
        if (drawn) g.lineTo(box.x + x, y(values[x]));
        else g.moveTo(box.x + x, y(values[x]));
        g.lineTo(box.x + x + 1, y(values[x]));
        drawn = true;
    }
    g.stroke();
}

function drawMemory(g, width, height, view) {
    const t = trace(), id = view.pool, box = { x: 68, y: 18, w: width - 78, h: height - 42 };
    const w = Math.max(1, Math.floor(box.w)), { columns, slots, top, all } = poolColumns(t, id, app.from, app.to, w), figures = figuresOf(t, id);
    const held = t.col('figures', 'held'), limit = t.col('figures', 'limit'), isDevice = id[0] === 'd';
    let most = Math.max(top, 1), bound = 0;
    for (const i of isDevice ? figures : []) {
        most = Math.max(most, held[i]);
        if (limit[i] > 0) bound = limit[i];
    }
    if (bound > 0 && bound < most * 4) most = Math.max(most, bound);
    most *= 1.06;
    const y = value => box.y + box.h * (1 - value / most), unit = 2 ** (10 * Math.floor(Math.log2(most) / 10));
    verticalAxis(g, box, steps(0, most / unit, 5).values.map(v => [v * unit, y(v * unit)]), bytesText, '');
    timeAxis(g, box, app.from, app.to);
    const { labels } = poolEvents(t, id);
    for (let x = 0; x < w; x++) {
        let sum = 0;
        for (let s = 0; s < slots; s++) {
            const value = columns[x * slots + s];
            if (value <= 0) continue;
            g.fillStyle = STACK[s];
            const low = y(sum), high = y(sum + value);
            g.fillRect(box.x + x, high, 1.3, low - high);
            sum += value;
        }
    }
    memoryLetters(g, box, columns, slots, w, y, labels);
    g.lineWidth = 1.8;
    if (isDevice && figures.length > 0) {
        g.strokeStyle = colour('text');
        g.setLineDash([5, 3]);
        drawStepLine(g, t, box, figures, held, y, app.from, app.to);
        g.setLineDash([1.5, 3]);
        drawColumnLine(g, box, all, y);
        g.setLineDash([]);
        if (bound > 0 && bound <= most) {
            g.strokeStyle = colour('mark');
            drawStepLine(g, t, box, figures, limit, y, app.from, app.to);
            g.fillStyle = colour('mark');
            g.fillText('limit ' + bytesText(bound), box.x + 6, Math.max(9, y(bound) - 8));
        }
    }
    if (isDevice) memoryMarks(g, t, box, Number(id.slice(1)));
    if (view.time >= app.from && view.time <= app.to) {
        const x = box.x + (view.time - app.from) / (app.to - app.from) * box.w;
        g.fillStyle = colour('mark');
        g.fillRect(x - 1, box.y, 2, box.h);
    }
    view.box = box;
}

/* Draws a letter in each band, at its largest place, so that colour alone need not identify the
 * band. */
function memoryLetters(g, box, columns, slots, w, y, labels) {
    for (let s = 0; s < Math.min(slots, labels.length); s++) {
        let x = -1, most = 0, score = 0;
        for (let from = 8; from < w - 8;) {
            const value = columns[from * slots + s];
            let to = from + 1;
            while (to < w - 8 && columns[to * slots + s] === value) to++;
            if (value * (to - from) > score) {
                score = value * (to - from);
                most = value;
                x = Math.floor((from + to) / 2);
            }
            from = to;
        }
        if (x < 0) continue;
        let below = 0;
        for (let k = 0; k < s; k++) below += columns[x * slots + k];
        if (y(below) - y(below + most) > 12) letterOn(g, String.fromCharCode(65 + s), box.x + x, (y(below) + y(below + most)) / 2, STACK[s]);
    }
}

/* Draws a letter at the top for each time when memory was mapped, moved, unmapped or reclaimed. */
function memoryMarks(g, t, box, d) {
    const kind = t.col('pauses', 'kind'), begin = t.col('pauses', 'begin'), device = t.col('pauses', 'device'), detail = t.col('pauses', 'detail');
    let free = -Infinity;
    for (let i = 0; i < kind.length; i++) {
        if (device[i] !== d || !MEMORY_PAUSES.has(kind[i]) || begin[i] < app.from || begin[i] > app.to) continue;
        const x = box.x + (begin[i] - app.from) / (app.to - app.from) * box.w;
        if (x < free) continue;
        const letter = kind[i] === 7 ? 'r' : kind[i] === 3 ? 'w' : ['', '+', 'm', '−'][detail[i]] || '+';
        letterOn(g, letter, Math.max(box.x + 6, x), 8, kind[i] === 7 ? '#d55e00' : kind[i] === 3 ? '#e69f00' : '#009e73');
        free = x + 12;
    }
}

/* The kinds of pauses in which memory was mapped, moved, unmapped, waited for or reclaimed. */
const MEMORY_PAUSES = new Set([3, 4, 7]), CHANGES = 60, MOMENTS = 24;

function changeText(t, i) {
    const kind = t.col('pauses', 'kind')[i];
    return kind === 4 ? ['maps memory', 'maps memory', 'moves memory', 'unmaps memory'][t.col('pauses', 'detail')[i]] || 'maps memory' : kind === 7 ? 'asks the program to free' : PAUSES[kind];
}

function changesTable(t, pool) {
    const kind = t.col('pauses', 'kind'), device = t.col('pauses', 'device'), begin = t.col('pauses', 'begin'), end = t.col('pauses', 'end'), bytes = t.col('pauses', 'bytes');
    const list = [];
    for (let i = 0; i < kind.length; i++) if (MEMORY_PAUSES.has(kind[i]) && 'd' + device[i] === pool) list.push(i);
    list.sort((a, b) => end[b] - begin[b] - end[a] + begin[a]);
    return table('the longest first', ['what', 'from', 'took', 'bytes', 'thread'], list.slice(0, CHANGES).map(i =>
        [changeText(t, i), moment(t, begin[i]), duration(end[i] - begin[i]), bytes[i] > 0 ? bytesText(bytes[i]) : '–', t.threadName(t.col('pauses', 'thread')[i])]), CHANGES, list.length);
}

/* The chart as a table. For each part of the span, it shows the most bytes that buffers took, and
 * the bytes that the device held at the end. */
function momentsTable(t, pool) {
    const { columns, slots, ends } = poolColumns(t, pool, app.from, app.to, MOMENTS), { labels } = poolEvents(t, pool), isDevice = pool[0] === 'd';
    const figures = isDevice ? figuresOf(t, pool) : [], time = t.col('figures', 'time');
    const figure = (at, field) => at >= 0 && t.col('figures', field)[at] > 0 ? bytesText(t.col('figures', field)[at]) : '–';
    const rows = [];
    for (let m = 0, f = -1; m < MOMENTS; m++) {
        const end = app.from + (m + 1) / MOMENTS * (app.to - app.from), parts = Array.from(columns.slice(m * slots, (m + 1) * slots));
        while (f + 1 < figures.length && time[figures[f + 1]] <= end) f++;
        const names = parts.map((bytes, s) => ({ bytes, text: s < STACKED ? short(labelName(t, labels[s]), 40) : 'other labels' })).filter(({ bytes }) => bytes > 0);
        const at = f >= 0 ? figures[f] : -1;
        rows.push([moment(t, app.from + m / MOMENTS * (app.to - app.from)), bytesText(parts.reduce((a, b) => a + b, 0)),
            ...(isDevice ? [bytesText(ends[m]), ...['held', 'limit'].map(field => figure(at, field))] : []),
            { text: names.sort((a, b) => b.bytes - a.bytes).slice(0, 3).map(name => name.text + ' ' + bytesText(name.bytes)).join(', ') + (names.length > 3 ? ', and ' + (names.length - 3) + ' more' : '') || '–', class: 'text' }]);
    }
    return table('', ['from', 'buffers, at most', ...(isDevice ? ['in use at its end', 'held', 'limit'] : []), 'the largest labels'], rows);
}

function holdersAt(t, id, at) {
    const { events } = poolEvents(t, id), time = t.col('memory', 'time'), isAlloc = t.col('memory', 'is_alloc'), other = t.col('memory', 'other');
    const out = [];
    for (const i of events) {
        if (time[i] > at) break;
        if (isAlloc[i] && (other[i] < 0 || time[other[i]] > at)) out.push(i);
    }
    return out;
}

function holdersTable(t, id, at) {
    const live = holdersAt(t, id, at), bytes = t.col('memory', 'bytes'), label = t.col('memory', 'label'), byLabel = new Map();
    for (const i of live) {
        const entry = byLabel.get(label[i]) || { count: 0, bytes: 0, most: i };
        entry.count++;
        entry.bytes += bytes[i];
        if (bytes[i] > bytes[entry.most]) entry.most = i;
        byLabel.set(label[i], entry);
    }
    const sum = live.reduce((total, i) => total + bytes[i], 0), since = t.col('memory', 'since'), thread = t.col('memory', 'thread'), rungs = t.col('memory', 'rungs');
    const { slot } = poolEvents(t, id), letter = index => slot.get(index) < STACKED ? String.fromCharCode(65 + slot.get(index)) + ' ' : '';
    return el('div', null, el('h3', null, 'Holders at ' + moment(t, at) + ': ' + bytesText(sum) + ' in ' + live.length + (live.length === 1 ? ' buffer' : ' buffers')),
        table('by label', ['label', 'buffers', 'bytes', 'part'], [...byLabel.entries()].sort((a, b) => b[1].bytes - a[1].bytes).map(([index, entry]) =>
            [nameCell(letter(index) + labelName(t, index)), String(entry.count), bytesText(entry.bytes), percent(entry.bytes / Math.max(1, sum))]), 60),
        table('the largest buffers', ['label', 'bytes', 'since', 'by', 'steps beyond the thread’s own blocks'], live.sort((a, b) => bytes[b] - bytes[a]).map(i =>
            [nameCell(labelName(t, label[i])), bytesText(bytes[i]), moment(t, since[i]), t.threadName(thread[i]),
                RUNGS.filter((_, bit) => rungs[i] & 1 << bit).join(', ') || 'no']), 30));
}

function peakTime(t, id) {
    const { events } = poolEvents(t, id), isAlloc = t.col('memory', 'is_alloc'), bytes = t.col('memory', 'bytes'), time = t.col('memory', 'time'), flags = t.col('memory', 'flags');
    let sum = 0, most = -1, at = t.begin;
    for (const i of events) {
        sum += isAlloc[i] ? bytes[i] : -bytes[i];
        if (sum > most || (sum === most && isAlloc[i] && flags[i] & 2)) { /* if a buffer gets a label at the peak, the later time shows that label */
            most = sum;
            at = time[i];
        }
    }
    return at;
}

function buildMemory(body) {
    const t = trace(), pools = poolsOf(t);
    const view = { pool: pools[0].id, time: NaN }, holders = el('div', { 'aria-live': 'polite', id: 'holders' }), names = el('div');
    const frame = chart('Memory over time, stacked by label', 300, (g, width, height) => drawMemory(g, width, height, view));
    const showHolders = at => {
        view.time = at;
        holders.replaceChildren(holdersTable(t, view.pool, at));
        frame.redraw();
    };
    const paper = el('div', { class: 'paper', id: 'pools-paper' });
    const showNames = () => {
        const { labels } = poolEvents(t, view.pool);
        names.replaceChildren(labelLegend(t, labels));
    };
    const choice = el('select', { id: 'pool', on: { change: () => {
        view.pool = choice.value;
        view.time = NaN;
        holders.replaceChildren();
        showNames();
        tables.forEach(details => details.refresh());
        frame.redraw();
    } } }, pools.map(pool => el('option', { value: pool.id }, pool.text)));
    const step = by => {
        const from = view.time >= app.from && view.time <= app.to ? view.time : by > 0 ? app.from : app.to;
        showHolders(Math.min(app.to, Math.max(app.from, from + by * (app.to - app.from))));
    };
    withKeys(frame, 'Arrows move the moment whose holders are listed, Home and End go to the ends of the span.', {
        ArrowRight: () => step(0.01), ArrowLeft: () => step(-0.01), PageDown: () => step(0.1), PageUp: () => step(-0.1), Home: () => showHolders(app.from), End: () => showHolders(app.to) });
    const tables = [asTable(() => momentsTable(t, view.pool), 'The chart as a table'), asTable(() => changesTable(t, view.pool), 'What was mapped, moved and reclaimed, as a table')];
    frame.canvas.addEventListener('click', event => {
        const x = event.clientX - frame.canvas.getBoundingClientRect().left;
        if (view.box && x >= view.box.x) showHolders(app.from + (x - view.box.x) / view.box.w * (app.to - app.from));
    });
    add(body, el('div', { class: 'bar' }, el('label', { for: 'pool' }, 'Memory of'), choice, button('Holders at the peak', () => showHolders(peakTime(t, view.pool)), { id: 'peak' })),
        el('p', { class: 'quiet screen' }, 'Click the chart to list the buffers at that time, or use the left and right arrows once the chart has the focus. The chart shows the same span as the timeline.'), frame, names,
        el('p', { class: 'quiet' }, 'Dashed line: the physical memory that the runtime holds. Dotted line: the memory of all buffers, including buffers older than the trace. Letters at the top: + mapped, m moved, − unmapped, w a thread waited for memory, r Heddle asked the program to free memory.'),
        restNote(t), holders, paper, tables, asTable(() => table('', ['label', 'memory', 'most'], peaksByLabel(t, pools)), 'The most of each label as a table'));
    showNames();
    const draw = frame.redraw;
    let span = [app.from, app.to].join();
    frame.redraw = () => {
        draw();
        if (span !== (span = [app.from, app.to].join())) tables[0].refresh();
    };
    frame.beforePrint = () => {
        if (Number.isNaN(view.time)) showHolders(peakTime(t, view.pool));
        printPools(paper, pools.filter(pool => pool.id !== view.pool));
    };
    frame.afterPrint = () => paper.replaceChildren();
    return frame;
}

/* Notes about devices whose peak includes bytes without a label. */
function restNote(t) {
    return t.info.devices.map((device, d) => device.in_use_rest > 0 ? el('p', { class: 'quiet' }, 'Device ' + d + ': of ' + bytesText(device.in_use_most) + ' at most ' +
        bytesText(device.in_use_rest) + ' belong to buffers older than the trace, to unified buffers, or to the library, which also keeps freed memory for the next buffers.') : null).filter(Boolean);
}

const PAPER_POOLS = 8;

/* A reader cannot choose a pool on paper, so the other pools follow the chosen one. */
function printPools(paper, others) {
    paper.replaceChildren(...others.slice(0, PAPER_POOLS).map(pool => {
        const { labels } = poolEvents(trace(), pool.id), frame = chart('Memory of ' + pool.text, 200, (g, width, height) => drawMemory(g, width, height, { pool: pool.id, time: NaN }));
        frame.redraw();
        return el('div', { class: 'one' }, el('h3', null, 'Memory of ' + pool.text), frame, labelLegend(trace(), labels));
    }), leftOut(others.length - PAPER_POOLS, 'more kind of memory is not on paper: choose it before printing.', 'more kinds of memory are not on paper: choose one before printing.') || '');
}

function labelLegend(t, labels) {
    return legend(labels.slice(0, STACKED).map((index, s) => ({ text: short(labelName(t, index), 60), letter: String.fromCharCode(65 + s), colour: () => STACK[s] }))
        .concat(labels.length > STACKED ? [{ text: labels.length - STACKED + ' more labels', colour: () => STACK[STACKED] }] : []));
}

function peaksByLabel(t, pools) {
    const rows = [], isAlloc = t.col('memory', 'is_alloc'), bytes = t.col('memory', 'bytes'), label = t.col('memory', 'label');
    for (const pool of pools) {
        const now = new Map(), most = new Map();
        for (const i of poolEvents(t, pool.id).events) {
            const sum = (now.get(label[i]) || 0) + (isAlloc[i] ? bytes[i] : -bytes[i]);
            now.set(label[i], sum);
            most.set(label[i], Math.max(most.get(label[i]) || 0, sum));
        }
        for (const [index, value] of [...most.entries()].sort((a, b) => b[1] - a[1])) rows.push([nameCell(labelName(t, index)), pool.text, bytesText(value)]);
    }
    return rows;
}
