/* transfers.js - draws each transfer as a dot by its size and speed, and the peak of each path as a
 * line. */

const BY_HOST = 5; /* from this number on, the host moves the bytes */

function linkName(t, link) {
    return (WAYS[link.way] || 'way ' + link.way) + ', ' + t.deviceName(link.src) + ' to ' + t.deviceName(link.dst);
}

/* All moves of bytes: copies on devices, and transfers by the host. Copies of one stretch and path
 * are one move if only their sum was measured. A move is an operation (`op`) or a row of the
 * transfers (`row`); the other field is -1. */
function movesOf(t) {
    if (t.cache.has('moves')) return t.cache.get('moves');
    const op = [], row = [], bytes = [], ns = [], way = [], src = [], dst = [];
    const add = (o, r, table, i, took, from) => {
        op.push(o);
        row.push(r);
        bytes.push(t.col(table, 'bytes')[i]);
        ns.push(took);
        way.push(t.col(table, 'way')[i]);
        src.push(from[0][i]);
        dst.push(from[1][i]);
    };
    const kind = t.col('ops', 'kind'), stretch = t.col('ops', 'stretch'), flags = t.col('ops', 'flags'), began = t.col('ops', 'began'), ended = t.col('ops', 'ended');
    const path = [t.col('ops', 'src'), t.col('ops', 'dst')], size = t.col('ops', 'bytes'), ways = t.col('ops', 'way');
    let before = -1;
    for (let i = 0; i < kind.length; i++) {
        const last = op.length - 1;
        if (kind[i] === 2 && before >= 0 && before === stretch[i] && !(flags[i] & 1) && way[last] === ways[i] && src[last] === path[0][i] && dst[last] === path[1][i]) {
            bytes[last] += size[i];
            ns[last] = ended[i] - began[op[last]];
        } else if (kind[i] === 2) {
            add(i, -1, 'ops', i, ended[i] - began[i], path);
        }
        before = kind[i] === 2 ? stretch[i] : -1;
    }
    const called = t.col('transfers', 'called'), returned = t.col('transfers', 'returned'), from = t.col('transfers', 'began'), to = t.col('transfers', 'ended');
    const ends = [t.col('transfers', 'src'), t.col('transfers', 'dst')], how = t.col('transfers', 'way');
    for (let i = 0; i < called.length; i++) {
        if (how[i] >= BY_HOST) add(-1, i, 'transfers', i, Number.isNaN(to[i] - from[i]) ? returned[i] - called[i] : to[i] - from[i], ends);
    }
    const made = { op, row, bytes, ns, way, src, dst };
    t.cache.set('moves', made);
    return made;
}

function linkOf(t, m, i) {
    return t.info.links.find(link => link.way === m.way[i] && link.src === m.src[i] && link.dst === m.dst[i]);
}

/* The moves of a path, or of all paths. `list`: the indices of moves with bytes and a time, sorted
 * by bytes. `without`: the number of other moves. */
function pointsOf(t, link) {
    const key = 'points' + t.info.links.indexOf(link);
    if (t.cache.has(key)) return t.cache.get(key);
    const m = movesOf(t), list = [];
    let without = 0;
    for (let i = 0; i < m.bytes.length; i++) {
        if (link && (m.way[i] !== link.way || m.src[i] !== link.src || m.dst[i] !== link.dst)) continue;
        if (m.ns[i] > 0 && m.bytes[i] > 0) list.push(i);
        else without++;
    }
    const speed = i => m.bytes[i] / m.ns[i];
    list.sort((a, b) => m.bytes[a] - m.bytes[b] || speed(a) - speed(b));
    const made = { list, without, speed };
    t.cache.set(key, made);
    return made;
}

/* Draws one dot for each cell of two pixels, since there may be a million moves. */
function drawTransfers(g, width, height, view) {
    const t = trace(), box = { x: 62, y: 20, w: width - 76, h: height - 46 }, { list, speed } = pointsOf(t, view.link), { bytes, way } = movesOf(t);
    view.place = null;
    if (list.length === 0) {
        g.fillStyle = colour('soft');
        g.fillText('No transfer has a time.', box.x + 10, height / 2);
        return;
    }
    const peaks = t.info.links.filter(link => link.peak > 0 && (!view.link || view.link === link));
    let slow = Infinity, fast = 0;
    for (const i of list) {
        slow = Math.min(slow, speed(i));
        fast = Math.max(fast, speed(i));
    }
    for (const { peak } of peaks) fast = Math.max(fast, peak / 1e9);
    fast *= 1.6;
    slow = Math.min(slow / 1.6, fast / 100);
    const lx0 = Math.log2(bytes[list[0]]) - 0.5, lx1 = Math.log2(bytes[list[list.length - 1]]) + 0.5, ly0 = Math.log10(slow), ly1 = Math.log10(fast);
    const x = b => box.x + (Math.log2(b) - lx0) / (lx1 - lx0) * box.w, y = s => box.y + box.h * (1 - (Math.log10(s) - ly0) / (ly1 - ly0));
    const powers = [];
    for (let p = Math.ceil(ly0); p <= ly1; p++) powers.push([10 ** p, y(10 ** p)]);
    verticalAxis(g, box, powers, v => rate(v * 1e9), '');
    const sizes = [], every = Math.max(1, Math.ceil((lx1 - lx0) / (box.w / 70)));
    for (let p = Math.ceil(lx0); p <= lx1; p += every) sizes.push([2 ** p, x(2 ** p)]);
    horizontalAxis(g, box, sizes, bytesText);
    const taken = new Set();
    for (const i of list) {
        const px = Math.round(x(bytes[i]) / 2) * 2, py = Math.round(y(speed(i)) / 2) * 2, key = (px * 4096 + py) * 16 + way[i];
        if (taken.has(key)) continue;
        taken.add(key);
        drawDot(g, px, py, way[i]);
    }
    drawPeaks(g, box, peaks, y);
    view.place = i => [x(bytes[i]), y(speed(i))];
    if (view.chosen >= 0 && list.includes(view.chosen)) {
        const [px, py] = view.place(view.chosen);
        g.strokeStyle = colour('mark');
        g.lineWidth = 2;
        g.strokeRect(px - 7, py - 7, 14, 14);
    }
}

/* Draws a dashed line for each path's peak. The highest line of each way gets a name. */
function drawPeaks(g, box, peaks, y) {
    const named = new Set();
    let above = -Infinity;
    for (const link of peaks.slice().sort((a, b) => b.peak - a.peak)) {
        const py = y(link.peak / 1e9);
        g.strokeStyle = STACK[link.way % STACK.length];
        g.lineWidth = 1.5;
        g.setLineDash([7, 4]);
        g.beginPath();
        g.moveTo(box.x, py);
        g.lineTo(box.x + box.w, py);
        g.stroke();
        g.setLineDash([]);
        if (named.has(link.way) || py < above + 13) continue;
        named.add(link.way);
        above = py;
        g.fillStyle = colour('text');
        g.fillText('peak ' + (WAYS[link.way] || '') + ', ' + rate(link.peak), box.x + 8, py - 8);
    }
}

function nearestPoint(view, mx, my) {
    const { list } = pointsOf(trace(), view.link);
    let best = -1, distance = 100;
    for (const i of view.place ? list : []) {
        const [px, py] = view.place(i), away = (px - mx) ** 2 + (py - my) ** 2;
        if (away < distance) {
            distance = away;
            best = i;
        }
    }
    return best;
}

/* Draws a dot. Each way uses its own shape and colour. */
function drawDot(g, x, y, way) {
    g.fillStyle = g.strokeStyle = STACK[way % STACK.length];
    g.lineWidth = 1.5;
    g.beginPath();
    switch (way % 4) {
    case 0:
        g.rect(x - 2.5, y - 2.5, 5, 5);
        g.stroke();
        break;
    case 1:
        g.arc(x, y, 2.8, 0, 7);
        g.fill();
        break;
    case 2:
        g.moveTo(x, y - 3.5);
        g.lineTo(x + 3.5, y + 3);
        g.lineTo(x - 3.5, y + 3);
        g.fill();
        break;
    default:
        g.moveTo(x - 3, y - 3);
        g.lineTo(x + 3, y + 3);
        g.moveTo(x + 3, y - 3);
        g.lineTo(x - 3, y + 3);
        g.stroke();
    }
}

function dotLegend(ways) {
    return el('ul', { class: 'legend' }, ways.map(way => {
        const canvas = el('canvas', { 'aria-hidden': 'true' });
        canvas.redraw = () => drawDot(sized(canvas, 22, 14), 11, 7, way);
        canvas.redraw();
        return el('li', null, canvas, WAYS[way] || 'way ' + way);
    }));
}

function transferDetails(t, i) {
    const m = movesOf(t), op = m.op[i], link = linkOf(t, m, i), speed = m.bytes[i] / m.ns[i] * 1e9;
    const row = m.row[i] >= 0 ? m.row[i] : t.col('transfers', 'op').indexOf(op), get = field => t.col('transfers', field)[row];
    return [el('h3', null, bytesText(m.bytes[i]) + ', ' + linkName(t, { way: m.way[i], src: m.src[i], dst: m.dst[i] })), facts([
        ['speed', rate(speed) + (link && link.peak > 0 ? ', ' + percent(speed / link.peak) + ' of the peak of its path' : '')], ['took', duration(m.ns[i])],
        ...(row < 0 ? [] : [['from', labelName(t, get('src_label'))], ['to', labelName(t, get('dst_label'))],
            ['called', moment(t, get('called')) + ' by ' + t.threadName(get('thread'))], ['the call took', duration(get('returned') - get('called'))]]),
        ['operation', op >= 0 ? linkButton(opLine(t, op), () => {
            goTo('timeline');
            selectOp(op, true);
        }) : 'none: the host copied the bytes within the call']])];
}

/* The dots as a table. A row sums up the moves of one path with sizes between two powers of
 * four. */
function sizesTable(t, chosen) {
    const m = movesOf(t), rows = [];
    for (const link of chosen ? [chosen] : t.info.links) {
        const { list, speed } = pointsOf(t, link);
        for (let from = 0; from < list.length;) {
            const power = Math.floor(Math.log2(m.bytes[list[from]]) / 2);
            let to = from;
            while (to < list.length && Math.floor(Math.log2(m.bytes[list[to]]) / 2) === power) to++;
            const speeds = Float64Array.from(list.slice(from, to), speed).sort(), median = quantile(speeds, 0.5);
            rows.push([linkName(t, link), bytesText(4 ** power) + ' to ' + bytesText(4 ** (power + 1)), count(to - from), rate(speeds[0] * 1e9), rate(median * 1e9),
                rate(speeds[speeds.length - 1] * 1e9), link.peak > 0 ? percent(median * 1e9 / link.peak) : '–']);
            from = to;
        }
    }
    return table('', ['path', 'size', 'transfers', 'slowest', 'median', 'fastest', 'median of peak'], rows);
}

function linkTable(t) {
    return table('', ['path', 'transfers', 'bytes', 'busy', 'speed while busy', 'fastest of 1 MiB or more', 'peak', 'speed of peak', 'submit to end, median', 'p99'],
        t.info.links.map(link => [linkName(t, link), link.count.toLocaleString('en-US'), bytesText(link.bytes), duration(link.busy), rate(link.rate), rate(link.best),
            rate(link.peak), link.peak > 0 && link.rate > 0 ? percent(link.rate / link.peak) : '–', duration(link.p50), duration(link.p99)]));
}

function buildTransfers(body) {
    const t = trace(), view = { link: null, chosen: -1 }, details = el('div', { 'aria-live': 'polite', id: 'transfer' }), without = el('div');
    const frame = chart('Transfers by size and speed, with the peak of each path', 300, (g, width, height) => drawTransfers(g, width, height, view));
    const choose = i => {
        view.chosen = i;
        details.replaceChildren(...(i >= 0 ? [el('div', { class: 'detail' }, transferDetails(t, i))] : []));
        frame.redraw();
    };
    const step = by => {
        const { list } = pointsOf(t, view.link), at = list.indexOf(view.chosen);
        if (list.length > 0) choose(list[at < 0 ? (by === 1 || by === -Infinity ? 0 : list.length - 1) : Math.min(list.length - 1, Math.max(0, at + by))]);
    };
    const sizes = asTable(() => sizesTable(t, view.link), 'The speeds by size as a table');
    const show = () => {
        without.replaceChildren(leftOut(pointsOf(t, view.link).without, 'transfer has no bytes or no measured time, so it has no dot.', 'transfers have no bytes or no measured time, so they have no dot.') || '');
        sizes.refresh();
    };
    const choice = el('select', { id: 'link', on: { change: () => {
        view.link = t.info.links[choice.selectedIndex - 1] || null;
        choose(-1);
        show();
    } } }, el('option', null, 'all paths'), t.info.links.map(link => el('option', null, linkName(t, link))));
    withKeys(frame, 'Arrows go to the next larger and smaller transfer, Escape ends the choice.', {
        ArrowRight: () => step(1), ArrowLeft: () => step(-1), Home: () => step(-Infinity), End: () => step(Infinity), Escape: () => choose(-1) });
    frame.canvas.addEventListener('click', event => {
        const box = frame.canvas.getBoundingClientRect();
        choose(nearestPoint(view, event.clientX - box.left, event.clientY - box.top));
    });
    const ways = [...new Set(t.info.links.map(link => link.way))].sort((a, b) => a - b);
    add(body, el('div', { class: 'bar' }, el('label', { for: 'link' }, 'Path'), choice),
        el('p', { class: 'quiet screen' }, 'Click a dot to see its details, or use the left and right arrows once the chart has the focus.'), frame, dotLegend(ways),
        el('p', { class: 'quiet' }, t.info.links.some(link => link.peak > 0) ? 'Dashed: the peaks that “heddle p2p” measured.' :
            'No path has a measured peak: to see peaks, also pass a file of “heddle p2p --json”.'), without, details, linkTable(t), sizes);
    const draw = frame.redraw;
    let counted = false; /* counts at the first drawing, not before, since sorting a million moves takes time */
    frame.redraw = () => {
        draw();
        if (!counted) show();
        counted = true;
    };
    return frame;
}
