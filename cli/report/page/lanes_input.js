/* lanes_input.js - mouse, fingers and keys in the timeline; the selection, and its details in
 * words. */

const LANES_HELP = 'Arrows left and right go to the next item of the row, up and down to another row. Plus and minus zoom, ' +
    'Shift and arrows move the view, 0 shows everything. Enter selects, Escape ends the selection, f folds a device.';

const WAITS = 40, GAPS = 40; /* the most waits of an operation, and the most gaps of all devices, that are listed */

/* -------------------------------------------------------------------------------------------------------- selection */

function bringToView(from, to) {
    const length = to - from, view = app.to - app.from;
    if (from >= app.from && to <= app.to && length > view / 200) {
        askDraw();
        return;
    }
    const room = Math.min(Math.max(length * 4, Math.min(view, length * 40), 200), trace().end - trace().begin);
    setWindow((from + to) / 2 - room / 2, (from + to) / 2 + room / 2);
}

function bringRow(row) {
    if (!row) return;
    lanes.row = lanes.rows.indexOf(row);
    const { scrollTop, clientHeight } = lanes.scroller;
    if (row.y < scrollTop || row.y + row.h > scrollTop + clientHeight) lanes.scroller.scrollTop = row.y - clientHeight / 3;
}

function select(what, view) {
    app.selected = what;
    showDetails();
    if (what && view) bringToView(what.from, what.to);
    askDraw();
}

function selectOp(op, view) {
    const t = trace(), [from, to] = t.opTimes(op), lane = t.col('ops', 'lane')[op];
    unfold(t.deviceOfLane(lane));
    bringRow(lanes.byLane.get(lane));
    select({ kind: 'op', op, chain: t.chain(op), from, to }, view);
}

function selectPiece(d, piece, view) {
    const t = trace(), op = t.col('pieces', 'op')[piece];
    bringRow(lanes.rows.find(row => row.kind === 'strip' && row.device === d));
    select({
        kind: 'piece', device: d, piece, from: t.col('pieces', 'begin')[piece], to: t.pieceEnd(d, piece),
        chain: t.pieceCategories()[piece] >= 2 && op >= 0 ? t.chain(op) : [],
    }, view);
}

function selectItem(row, index, view) {
    if (row.kind === 'strip') {
        selectPiece(row.device, index, view);
    } else if (row.kind === 'lane') {
        const t = trace(), first = t.col('stretches', 'first_op')[index];
        if (first >= 0) selectOp(first, view);
    } else if (row.begin) {
        select({ kind: 'item', row, index, from: row.begin[index], to: row.end[index] }, view);
    }
}

function unfold(d) {
    if (!lanes.folded.delete(d)) return;
    refold();
}

function refold() {
    makeRows();
    lanes.spacer.style.height = Math.max(0, lanes.height - Math.min(lanes.height, lanes.scroller.clientHeight)) + 'px';
    sizeLanes();
    askDraw();
}

/* ----------------------------------------------------------------------------------------------------------- details */

function waitText(t, wait) {
    const label = short(t.nameOf(t.col('waits', 'label')[wait]), NAME), low = t.col('waits', 'low')[wait], high = t.col('waits', 'high')[wait];
    const flags = t.col('waits', 'flags')[wait];
    return (flags & 1 ? 'reads the bytes that it writes' : 'uses the same bytes after it') + ': buffer ' + (label ? '“' + label + '”' : '(no label)') +
        (high > low ? ', bytes ' + low.toLocaleString('en-US') + ' to ' + high.toLocaleString('en-US') : '') +
        (flags & 2 ? ', and waits longer than necessary: the lane recorded its next event only behind later work' : '');
}

function opLine(t, op) {
    const lane = t.col('ops', 'lane')[op];
    return short(t.opName(op), NAME) + ' on ' + t.deviceName(t.deviceOfLane(lane)) + ', ' + t.laneName(lane);
}

/* The chain as a list. The button in each entry selects its operation. */
function chainList(t, chain, most = 12) {
    const heldBy = t.col('ops', 'held_by'), more = chain.length - most;
    const list = el('ol', { class: 'chain' }, chain.slice(0, most).map((op, i) => {
        const [from, to] = t.opTimes(op), wait = i > 0 ? heldBy[chain[i - 1]] : -1;
        const why = i === 0 ? '' : wait >= 0 ? waitText(t, wait) : 'it comes first in the same lane';
        return el('li', null, i === 0 ? 'this: ' : 'held up by ', linkButton(opLine(t, op), () => selectOp(op, true)),
            el('span', { class: 'quiet' }, ' ' + moment(t, from) + ' to ' + moment(t, to) + (why ? '; ' + why : '')));
    }));
    const rest = leftOut(chain.beyond, 'more operation of the chain is neither listed nor drawn. Select the last one to go on.',
        'more operations of the chain are neither listed nor drawn. Select the last one to go on.');
    return more > 0 ? [list, button(more + ' more', event => {
        const whole = chainList(t, chain, chain.length)[0];
        event.target.replaceWith(whole);
        list.remove();
        whole.children[most].querySelector('button').focus();
    }), rest] : [list, rest];
}

function opFacts(t, op) {
    const get = field => t.col('ops', field)[op], since = (a, b) => Number.isNaN(a) || Number.isNaN(b) ? null : duration(b - a);
    const kind = get('kind'), stretch = get('stretch');
    const several = stretch >= 0 ? t.col('stretches', 'last_op')[stretch] - t.col('stretches', 'first_op')[stretch] + 1 : 1;
    return facts([
        ['operation', opLine(t, op) + ', position ' + get('position')],
        ['whole name', short(t.opName(op), NAME) === t.opName(op) ? null : t.opName(op)],
        ['submitted', moment(t, get('submitted')) + ' by ' + t.threadName(get('thread'))],
        ['given to the driver', since(get('submitted'), get('issued')) && since(get('submitted'), get('issued')) + ' after its submit'],
        ['began', since(get('submitted'), get('began')) && moment(t, get('began')) + ', ' + since(get('submitted'), get('began')) + ' after its submit'],
        ['ran', since(get('began'), get('ended')) && since(get('began'), get('ended')) +
            (get('flags') & 1 ? '' : several > 1 ? ' with ' + (several - 1) + ' more in one stretch' : ', not measured by itself')],
        ['seen as done', since(get('ended'), get('done')) && since(get('ended'), get('done')) + ' after its end'],
        ['failed', get('flags') & 2 ? 'yes' : null],
        ['grid', kind === 1 && get('blocks') > 0 ? get('blocks').toLocaleString('en-US') + ' blocks of ' + get('threads') + ' threads' : null],
        ['bytes', get('bytes') > 0 ? bytesText(get('bytes')) + (get('ended') > get('began') ? ', ' + rate(get('bytes') / (get('ended') - get('began')) * 1e9) : '') : null],
        ['way', kind === 2 ? WAYS[get('way')] : null],
        ['ring', get('ring') > 0 ? get('ring') + ' slots taken' : null],
    ]);
}

function waitsOf(t, op) {
    const first = t.col('ops', 'first_wait')[op], end = Math.min(first + t.col('ops', 'n_waits')[op], t.count('waits')), out = [];
    for (let i = first; i < end && out.length < WAITS; i++) {
        const other = t.col('waits', 'other')[i];
        out.push(el('li', null, other >= 0 ? linkButton(opLine(t, other), () => selectOp(other, true)) : 'work that is missing in the trace',
            el('span', { class: 'quiet' }, ' ' + waitText(t, i))));
    }
    return out.length > 0 ? [el('h3', null, 'The operation waits for'), el('ul', null, out), leftOut(end - first - out.length, 'more wait is not shown.', 'more waits are not shown.')] : [];
}

function opDetails(t, op) {
    const stretch = t.col('ops', 'stretch')[op], buttons = [];
    const step = (to, text) => {
        if (to >= 0 && to < t.count('ops') && t.col('ops', 'lane')[to] === t.col('ops', 'lane')[op]) buttons.push(button(text, () => selectOp(to, true)));
    };
    step(op - 1, 'Operation before');
    step(op + 1, 'Operation behind');
    const chain = app.selected.chain;
    return [el('h3', null, short(t.opName(op), NAME)), el('div', { class: 'bar' }, buttons,
        chain.length > 1 ? button('Show the whole chain', () => showChain(t, chain)) : null), opFacts(t, op), ...waitsOf(t, op),
    el('h3', null, chain.length > 1 ? 'The chain of waits, back from this operation' : 'The trace shows nothing that held up this operation'),
    chain.length > 1 ? chainList(t, chain) : null, stretch < 0 ? el('p', { class: 'quiet' }, 'This operation has no time on the device.') : null];
}

function showChain(t, chain) {
    const times = chain.map(op => t.opTimes(op)), from = Math.min(...times.map(x => x[0])), to = Math.max(...times.map(x => x[1]));
    setWindow(from - (to - from) * 0.05, to + (to - from) * 0.05);
}

function pieceDetails(t, s) {
    const c = t.pieceCategories()[s.piece], op = t.col('pieces', 'op')[s.piece], holder = t.col('pieces', 'holder')[s.piece];
    const other = t.col('pieces', 'other')[s.piece], wait = t.col('pieces', 'wait')[s.piece];
    return [el('h3', null, 'device ' + s.device + ', ' + CATEGORY[c].text), facts([
        ['from', moment(t, s.from)], ['length', duration(s.to - s.from) + ' (' + exactly(s.to - s.from) + ')'],
        ['the other end', other >= 0 ? t.deviceName(other) : null],
        ['buffer', wait >= 0 ? waitText(t, wait) : null],
        [c < 2 ? 'operation' : 'held up', op >= 0 ? linkButton(opLine(t, op), () => selectOp(op, true)) : null],
        ['by', holder >= 0 ? linkButton(opLine(t, holder), () => selectOp(holder, true)) : null],
    ]), s.chain.length > 1 ? el('h3', null, 'The chain of waits, back from the operation that was held up') : null, s.chain.length > 1 ? chainList(t, s.chain) : null];
}

function namedBy(t, table, i) {
    return ['named by', t.col(table, 'nvtx')[i] ? 'NVTX' : 'the program'];
}

function itemDetails(t, s) {
    const i = s.row.items[s.index], pairs = [['from', moment(t, s.from)], ['length', duration(s.to - s.from)]];
    if (s.row.kind === 'pause') {
        const lane = t.col('pauses', 'lane')[i], bytes = t.col('pauses', 'bytes')[i], device = t.col('pauses', 'device')[i];
        pairs.push(['thread', t.threadName(t.col('pauses', 'thread')[i])], ['device', t.deviceName(device)],
            ['lane', t.col('pauses', 'kind')[i] < 3 ? t.laneName(lane) : null], ['bytes', bytes > 0 ? bytesText(bytes) : null]);
    } else if (s.row.kind === 'range') {
        pairs.push(['thread', t.threadName(t.col('ranges', 'thread')[i])], namedBy(t, s.row.table, i));
    } else if (s.row.kind === 'interval') {
        const began = t.threadName(t.col('intervals', 'began_by')[i]), ended = t.threadName(t.col('intervals', 'ended_by')[i]);
        pairs.push(...(endsElsewhere(t, i) ? [['began in', began], ['ended in', ended]] : [['thread', began]]), namedBy(t, s.row.table, i));
    } else {
        const op = t.col('activities', 'op')[i], bytes = t.col('activities', 'bytes')[i];
        pairs.push(['bytes', bytes > 0 ? bytesText(bytes) : null], ['measured by', 'CUPTI'],
            ['operation', op >= 0 ? linkButton(opLine(t, op), () => selectOp(op, true)) : 'none: this may be work of another library']);
    }
    return [el('h3', null, itemText(t, s.row, s.index) || 'no name'), facts(pairs)];
}

function showDetails() {
    const t = trace(), s = app.selected;
    const parts = !s ? [el('p', { class: 'quiet' }, 'Select an operation or a gap to see its details and waits here.')] :
        s.kind === 'op' ? opDetails(t, s.op) : s.kind === 'piece' ? pieceDetails(t, s) : itemDetails(t, s);
    lanes.details.classList.toggle('empty', !s);
    lanes.details.replaceChildren(...parts.flat(Infinity).filter(Boolean));
    if (s) lanes.details.append(el('div', { class: 'bar' }, button('Zoom to the selection', () => {
        const room = Math.max(100, (s.to - s.from) * 1.5);
        setWindow((s.from + s.to) / 2 - room / 2, (s.from + s.to) / 2 + room / 2);
    }), button('End the selection', () => {
        select(null);
        lanes.scroller.focus();
    })));
}

/* ---------------------------------------------------------------------------------------------- the item at a place */

function indexNear(row, x, width) {
    const time = timeOf(x, width), slack = (app.to - app.from) / (width - lanes.gutter) * 4;
    let i = upperBound(row.begin, time + slack, row.from, row.to) - 1;
    let best = -1, distance = slack;
    for (let n = 0; n < 12 && i >= row.from; n++, i--) {
        const away = time < row.begin[i] ? row.begin[i] - time : time > row.end[i] ? time - row.end[i] : -1;
        if (away < distance) {
            best = i;
            distance = away;
        }
    }
    return best;
}

function hit(x, y) {
    const t = trace(), width = lanes.scroller.clientWidth;
    const row = lanes.rows.find(r => y >= r.y - 1 && y < r.y + r.h + 1);
    if (!row) return null;
    if (x < lanes.gutter) return { row, index: -1, label: true };
    if (row.kind === 'head') return { row, index: -1 };
    if (row.kind === 'strip') {
        const [first, end] = t.pieces(row.device), i = upperBound(t.col('pieces', 'begin'), timeOf(x, width), first, end) - 1;
        return { row, index: i >= first && timeOf(x, width) <= t.info.devices[row.device].end ? i : -1 };
    }
    return { row, index: indexNear(row, x, width) };
}

function tipOf(found) {
    if (!found) return '';
    const t = trace(), { row, index } = found;
    if (found.label) return row.kind === 'strip' ? row.text + ' ' + row.name + '\nclick: fold or unfold' : row.text;
    if (index < 0) return '';
    if (row.kind === 'strip') {
        const c = t.pieceCategories()[index], other = t.col('pieces', 'other')[index];
        return CATEGORY[c].text + (other >= 0 ? ' (' + t.deviceName(other) + ')' : '') + '\n' + duration(t.pieceEnd(row.device, index) - t.col('pieces', 'begin')[index]);
    }
    return short(itemText(t, row, index), 160) + '\n' + duration(row.end[index] - row.begin[index]) + ' from ' + moment(t, row.begin[index]);
}

/* ------------------------------------------------------------------------------------------------------------- input */

function place(event) {
    const box = lanes.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top + lanes.scroll };
}

const pointers = new Map();

function pointerDown(event) {
    const at = place(event);
    pointers.set(event.pointerId, at);
    lanes.canvas.setPointerCapture(event.pointerId);
    lanes.scroller.focus({ preventScroll: true });
    lanes.drag = pointers.size === 1 ? { x: at.x, y: at.y, now: at.x, from: app.from, to: app.to, moved: false, select: event.shiftKey && at.x > lanes.gutter } :
        { pinch: [...pointers.values()].map(p => p.x), from: app.from, to: app.to, moved: true };
}

function pinch(width) {
    const [a, b] = [...pointers.values()].map(p => p.x), [c, d] = lanes.drag.pinch, { from, to } = lanes.drag;
    const old = Math.max(8, Math.abs(d - c)), now = Math.max(8, Math.abs(b - a)), length = (to - from) * old / now;
    const anchor = from + ((c + d) / 2 - lanes.gutter) / (width - lanes.gutter) * (to - from);
    const begin = anchor - ((a + b) / 2 - lanes.gutter) / (width - lanes.gutter) * length;
    setWindow(begin, begin + length);
}

function pointerMove(event) {
    const at = place(event), width = lanes.scroller.clientWidth;
    if (!lanes.drag || !pointers.has(event.pointerId)) {
        if (event.pointerType === 'mouse') showTip(event, tipOf(hit(at.x, at.y)));
        return;
    }
    pointers.set(event.pointerId, at);
    if (lanes.drag.pinch) {
        if (pointers.size === 2) pinch(width);
        return;
    }
    lanes.drag.now = at.x;
    lanes.drag.moved = lanes.drag.moved || Math.abs(at.x - lanes.drag.x) > 4;
    if (lanes.drag.select) {
        askDraw();
    } else if (lanes.drag.moved) {
        const by = (lanes.drag.x - at.x) / (width - lanes.gutter) * (lanes.drag.to - lanes.drag.from);
        setWindow(lanes.drag.from + by, lanes.drag.to + by);
    }
    showTip(event, '');
}

function pointerUp(event) {
    const drag = lanes.drag, at = place(event), width = lanes.scroller.clientWidth;
    pointers.delete(event.pointerId);
    lanes.drag = null;
    if (!drag || event.type === 'pointercancel') return;
    if (drag.select && drag.moved) {
        setWindow(timeOf(Math.min(drag.x, at.x), width), timeOf(Math.max(drag.x, at.x), width));
    } else if (!drag.moved) {
        click(hit(at.x, at.y));
    }
}

function fold(d) {
    if (!lanes.folded.delete(d)) lanes.folded.add(d);
    refold();
}

function click(found) {
    if (!found) return;
    lanes.row = lanes.rows.indexOf(found.row);
    if (found.label && found.row.kind === 'strip') fold(found.row.device);
    else if (found.index >= 0) selectItem(found.row, found.index, false);
    else select(null);
}

function wheel(event) {
    if (!event.ctrlKey && document.activeElement !== lanes.scroller) return; /* until the timeline is in use, the wheel scrolls the page */
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        pan(event.deltaX / 800);
    } else if (event.shiftKey) {
        lanes.scroller.scrollTop += event.deltaY;
    } else {
        zoom(Math.exp(event.deltaY * 0.0018), timeOf(place(event).x, lanes.scroller.clientWidth));
    }
}

/* The items of a row: `from` and `to` are indices into the column `begin`. */
function rowItems(row) {
    if (row.kind === 'strip') {
        const [from, to] = trace().pieces(row.device);
        return { from, to, begin: trace().col('pieces', 'begin') };
    }
    return { from: row.from || 0, to: row.to || 0, begin: row.begin };
}

/* The selected item of the row; -1: none. */
function selectedIn(row) {
    const s = app.selected;
    if (!s) return -1;
    if (row.kind === 'strip') return s.kind === 'piece' && s.device === row.device ? s.piece : -1;
    if (row.kind === 'lane') return s.kind === 'op' && trace().col('ops', 'lane')[s.op] === row.lane ? trace().col('ops', 'stretch')[s.op] : -1;
    return s.kind === 'item' && s.row.id === row.id ? s.index : -1;
}

function stepItem(by) {
    const row = lanes.rows[lanes.row];
    if (!row || row.kind === 'head') return;
    const { from, to, begin } = rowItems(row), at = selectedIn(row);
    if (from === to) return;
    const next = at >= 0 ? at + by : Math.min(to - 1, upperBound(begin, app.from, from, to));
    if (next >= from && next < to) selectItem(row, next, true);
}

function stepRow(by) {
    let next = lanes.row + by;
    while (lanes.rows[next] && lanes.rows[next].kind === 'head') next += by;
    if (lanes.rows[next]) bringRow(lanes.rows[next]);
    askDraw();
}

function key(event) {
    const row = lanes.rows[lanes.row], t = trace();
    const actions = {
        ArrowLeft: () => event.shiftKey ? pan(-0.2) : stepItem(-1), ArrowRight: () => event.shiftKey ? pan(0.2) : stepItem(1),
        ArrowUp: () => stepRow(-1), ArrowDown: () => stepRow(1), '+': () => zoom(0.6), '=': () => zoom(0.6), '-': () => zoom(1 / 0.6),
        0: () => setWindow(t.begin, t.end), Home: () => setWindow(t.begin, t.begin + app.to - app.from), End: () => setWindow(t.end - app.to + app.from, t.end),
        PageUp: () => pan(-0.9), PageDown: () => pan(0.9), Escape: () => select(null), f: () => row && row.device !== undefined && fold(row.device),
        Enter: () => selectedIn(row) >= 0 ? lanes.details.focus() : stepItem(1),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.key] || event.target !== lanes.scroller) return;
    event.preventDefault();
    actions[event.key]();
}

/* ------------------------------------------------------------------------------------------------------------- build */

function sizeLanes() {
    const most = Math.max(240, Math.min(lanes.height, Math.round(window.innerHeight * 0.72)));
    lanes.scroller.style.height = Math.min(lanes.height, most) + 'px';
    lanes.spacer.style.height = Math.max(0, lanes.height - Math.min(lanes.height, most)) + 'px';
}

function buildLanes(body) {
    const t = trace();
    lanes.folded = new Set(t.info.devices.length > 8 ? t.info.devices.map((_, d) => d) : []);
    lanes.axis = el('canvas', { 'aria-hidden': 'true' });
    lanes.axis.style.height = '34px';
    lanes.canvas = el('canvas', { 'aria-hidden': 'true' });
    lanes.spacer = el('div');
    lanes.scroller = el('div', {
        id: 'lanes-scroll', tabindex: '0', role: 'application', 'aria-label': 'Timeline of every device. ' + LANES_HELP,
        on: { keydown: key, scroll: askDraw, focus: askDraw, blur: askDraw },
    }, lanes.canvas, lanes.spacer);
    lanes.details = el('div', { class: 'detail', tabindex: '-1', 'aria-live': 'polite', id: 'details' });
    const critical = button('Critical path', () => {
        lanes.critical = !lanes.critical;
        lanes.refreshButtons();
        askDraw();
    }, { id: 'critical' });
    lanes.pathNote = el('p', { class: 'quiet left-out', 'aria-live': 'polite' });
    const beyond = el('div');
    lanes.refreshButtons = () => critical.setAttribute('aria-pressed', String(lanes.critical));
    lanes.refreshButtons();
    for (const [event, handler] of Object.entries({ pointerdown: pointerDown, pointermove: pointerMove, pointerup: pointerUp, pointercancel: pointerUp })) {
        lanes.canvas.addEventListener(event, handler);
    }
    lanes.canvas.addEventListener('pointerleave', event => showTip(event, ''));
    lanes.canvas.addEventListener('wheel', wheel, { passive: false });
    add(body, el('div', { class: 'bar' }, button('Zoom in', () => zoom(0.5), { 'data-do': 'in' }), button('Zoom out', () => zoom(2), { 'data-do': 'out' }),
        button('Earlier', () => pan(-0.5), { 'data-do': 'earlier' }), button('Later', () => pan(0.5), { 'data-do': 'later' }),
        button('Everything', () => setWindow(t.begin, t.end), { 'data-do': 'all' }), t.count('critical') > 0 ? critical : null),
    el('details', { class: 'screen' }, el('summary', null, 'Mouse and keys'), el('p', { class: 'quiet' }, 'Drag to move the view. Drag with Shift to show a span. Click the timeline once to zoom with the wheel. ' +
        'A click on an operation or a gap shows the chain of waits behind it. ' + LANES_HELP)),
    el('div', { class: 'canvas screen' }, lanes.axis, lanes.scroller), lanes.pathNote, el('div', { class: 'paper', id: 'lanes-paper' }), beyond, lanesLegend(t),
    lanes.details, ...timelineTables(t));
    makeRows();
    add(beyond, leftOut(lanes.threadsBeyond, 'more thread is not shown above; the tables below list it.', 'more threads are not shown above; the tables below list them.'),
        leftOut(lanes.intervalsBeyond, 'more interval is not shown above; the table below lists it.', 'more intervals are not shown above; the table below lists them.'));
    sizeLanes();
    showDetails();
}

