/* transfers.js - each transfer as a dot: its size over its speed, beside the peak of its path. */

function linkName(t, link) {
    return (WAYS[link.way] || 'way ' + link.way) + ', ' + t.deviceName(link.src) + ' to ' + t.deviceName(link.dst);
}

/* Dots by cells of two pixels, since there may be a million. */
function drawTransfers(g, width, height, view) {
    const t = trace(), box = { x: 62, y: 20, w: width - 76, h: height - 46 };
    const bytes = t.col('transfers', 'bytes'), began = t.col('transfers', 'began'), ended = t.col('transfers', 'ended');
    const way = t.col('transfers', 'way'), src = t.col('transfers', 'src'), dst = t.col('transfers', 'dst');
    const called = t.col('transfers', 'called'), returned = t.col('transfers', 'returned');
    const points = [];
    let least = Infinity, most = 0, slow = Infinity, fast = 0;
    for (let i = 0; i < bytes.length; i++) {
        if (view.link && (way[i] !== view.link.way || src[i] !== view.link.src || dst[i] !== view.link.dst)) continue;
        const ns = Number.isNaN(ended[i] - began[i]) ? returned[i] - called[i] : ended[i] - began[i];
        if (!(ns > 0) || !(bytes[i] > 0)) continue;
        const speed = bytes[i] / ns; /* GB/s */
        points.push(i, speed);
        least = Math.min(least, bytes[i]);
        most = Math.max(most, bytes[i]);
        slow = Math.min(slow, speed);
        fast = Math.max(fast, speed);
    }
    if (points.length === 0) {
        g.fillStyle = colour('soft');
        g.fillText('No transfer has a time.', box.x + 10, height / 2);
        return;
    }
    const peaks = t.info.links.filter(link => link.peak > 0 && (!view.link || view.link === link)).map(link => link.peak / 1e9);
    fast = Math.max(fast, ...peaks) * 1.6;
    slow = Math.min(slow / 1.6, fast / 100);
    const lx0 = Math.log2(least) - 0.5, lx1 = Math.log2(most) + 0.5, ly0 = Math.log10(slow), ly1 = Math.log10(fast);
    const x = b => box.x + (Math.log2(b) - lx0) / (lx1 - lx0) * box.w, y = s => box.y + box.h * (1 - (Math.log10(s) - ly0) / (ly1 - ly0));
    const powers = [];
    for (let p = Math.ceil(ly0); p <= ly1; p++) powers.push([10 ** p, y(10 ** p)]);
    verticalAxis(g, box, powers, v => v >= 1 ? String(v) : v.toFixed(Math.min(6, -Math.log10(v))), 'GB/s');
    const sizes = [], every = Math.max(1, Math.ceil((lx1 - lx0) / (box.w / 70)));
    for (let p = Math.ceil(lx0); p <= lx1; p += every) sizes.push([2 ** p, x(2 ** p)]);
    horizontalAxis(g, box, sizes, bytesText);
    const taken = new Set();
    for (let p = 0; p < points.length; p += 2) {
        const i = points[p], px = Math.round(x(bytes[i]) / 2) * 2, py = Math.round(y(points[p + 1]) / 2) * 2, key = (px * 4096 + py) * 16 + way[i];
        if (taken.has(key)) continue;
        taken.add(key);
        drawDot(g, px, py, way[i]);
    }
    for (const link of t.info.links) {
        if (!(link.peak > 0) || (view.link && view.link !== link)) continue;
        const py = y(link.peak / 1e9);
        g.strokeStyle = STACK[link.way % STACK.length];
        g.lineWidth = 1.5;
        g.setLineDash([7, 4]);
        g.beginPath();
        g.moveTo(box.x, py);
        g.lineTo(box.x + box.w, py);
        g.stroke();
        g.setLineDash([]);
        if (view.link) {
            g.fillStyle = colour('text');
            g.fillText('peak of the path, ' + rate(link.peak), box.x + 8, py - 8);
        }
    }
    view.box = box;
    view.nearest = (mx, my) => nearestPoint(points, i => x(bytes[i]), s => y(s), mx, my);
}

function nearestPoint(points, x, y, mx, my) {
    let best = -1, distance = 100;
    for (let p = 0; p < points.length; p += 2) {
        const dx = x(points[p]) - mx, dy = y(points[p + 1]) - my, away = dx * dx + dy * dy;
        if (away < distance) {
            distance = away;
            best = points[p];
        }
    }
    return best;
}

/* A shape and a colour for each way. */
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
    const get = field => t.col('transfers', field)[i], op = get('op'), ns = get('ended') - get('began');
    const link = t.info.links.find(l => l.way === get('way') && l.src === get('src') && l.dst === get('dst'));
    const speed = get('bytes') / (ns > 0 ? ns : get('returned') - get('called')) * 1e9;
    return [el('h3', null, bytesText(get('bytes')) + ', ' + linkName(t, { way: get('way'), src: get('src'), dst: get('dst') })), facts([
        ['speed', rate(speed) + (link && link.peak > 0 ? ', ' + percent(speed / link.peak) + ' of the peak of its path' : '')],
        ['from', labelName(t, get('src_label'))], ['to', labelName(t, get('dst_label'))],
        ['called', duration(get('called') - t.begin) + ' by ' + t.threadName(get('thread'))], ['the call took', duration(get('returned') - get('called'))],
        ['its work took', ns > 0 ? duration(ns) : null],
        ['operation', op >= 0 ? linkButton(opLine(t, op), () => {
            goTo('timeline');
            selectOp(op, true);
        }) : 'the host did it within the call']])];
}

function linkTable(t) {
    return table('', ['path', 'transfers', 'bytes', 'busy', 'speed while busy', 'best large one', 'peak', 'best of peak', 'submit to end, median', 'p99'],
        t.info.links.map(link => [linkName(t, link), link.count.toLocaleString('en-US'), bytesText(link.bytes), duration(link.busy), rate(link.rate), rate(link.best),
            rate(link.peak), link.peak > 0 ? percent(link.best / link.peak) : '–', duration(link.p50), duration(link.p99)]));
}

function buildTransfers(body) {
    const t = trace(), view = { link: null }, details = el('div', { 'aria-live': 'polite', id: 'transfer' });
    const frame = chart('Transfers: size over speed, with the peak of each path', 300, (g, width, height) => drawTransfers(g, width, height, view));
    const choice = el('select', { id: 'link', on: { change: () => {
        view.link = t.info.links[choice.selectedIndex - 1] || null;
        frame.redraw();
    } } }, el('option', null, 'all paths'), t.info.links.map(link => el('option', null, linkName(t, link))));
    frame.canvas.addEventListener('click', event => {
        const box = frame.canvas.getBoundingClientRect();
        const i = view.nearest ? view.nearest(event.clientX - box.left, event.clientY - box.top) : -1;
        details.replaceChildren(...(i >= 0 ? [el('div', { class: 'detail' }, transferDetails(t, i))] : []));
    });
    const ways = [...new Set(t.col('transfers', 'way'))].sort((a, b) => a - b);
    body.append(el('div', { class: 'bar' }, el('label', { for: 'link' }, 'Path'), choice), frame, dotLegend(ways),
        el('p', { class: 'quiet' }, t.info.links.some(link => link.peak > 0) ? 'Dashed: the peak that `heddle p2p` measured.' :
            'No path has a measured peak: give a file of `heddle p2p --json`, too.'), details, linkTable(t));
    return frame;
}
