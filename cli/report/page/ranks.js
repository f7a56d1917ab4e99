/* ranks.js - the traces of several ranks on one clock: a strip for each device of each rank, the
 * messages between the ranks, and who waited for whom. */

const RANK_ARROWS = 300; /* the most messages that are drawn */

/* A time on the common clock, as a time of a trace. The clock of the trace may run at another
 * rate. */
function rankTime(place, time) {
    const length = place.trace.info.length;
    return place.end > place.begin ? (time - place.begin) * length / (place.end - place.begin) : time - place.begin;
}

/* The part of the common clock in which a rank has work. */
function rankWindow(places) {
    const common = (place, time) => place.begin + time * (place.end - place.begin) / Math.max(1, place.trace.info.length);
    const from = Math.min(...places.map(place => common(place, place.trace.begin)));
    return { from, length: Math.max(1, Math.max(...places.map(place => common(place, place.trace.end))) - from) };
}

/* The traces with their places, in the order of ranks. */
function rankPlaces(ranks) {
    return ranks.traces.map(place => ({ ...place, trace: app.traces.find(t => t.id === place.id) })).filter(place => place.trace);
}

function drawRankStrip(g, box, y, h, place, d, { from: begin, length }) {
    for (let px = 0; px < box.w; px++) {
        const from = rankTime(place, begin + px / box.w * length), to = rankTime(place, begin + (px + 1) / box.w * length);
        if (to < place.trace.begin || from > place.trace.end) continue;
        const split = place.trace.splitBetween(d, from, to), sum = split.reduce((a, b) => a + b, 0);
        let top = y + h - 1;
        for (let c = 0; c < CATEGORIES && sum > 0; c++) {
            const part = split[c] / sum * (h - 2);
            g.fillStyle = categoryColour(c);
            g.fillRect(box.x + px, top - part, 1.2, part);
            top -= part;
        }
    }
}

function drawRanks(g, width, height, ranks, places) {
    const box = { x: 116, y: 8, w: Math.max(20, width - 126), h: height - 34 };
    const shown = rankWindow(places), { from, length } = shown, at = time => box.x + (time - from) / length * box.w;
    const rows = places.reduce((n, place) => n + place.trace.info.devices.length, 0), h = box.h / Math.max(1, rows + places.length * 0.4);
    const { step, values } = steps(0, length, box.w / (box.w < 500 ? 60 : 110));
    horizontalAxis(g, box, values.map(t => [t, box.x + t / length * box.w]), t => timeTick(t, step));
    let y = box.y;
    const middle = places.map(place => {
        const top = y;
        place.trace.info.devices.forEach((_, d) => {
            g.fillStyle = colour('soft');
            g.font = '11px system-ui, sans-serif';
            g.fillText('rank ' + place.rank + ', device ' + d, 6, y + h / 2);
            drawRankStrip(g, box, y, h, place, d, shown);
            y += h;
        });
        y += h * 0.4;
        return (top + y - h * 0.4) / 2;
    });
    g.strokeStyle = g.fillStyle = colour('mark');
    g.lineWidth = 1.2;
    for (const message of ranks.messages.slice(0, RANK_ARROWS)) {
        const x = at(message.received), to = middle[message.to];
        g.beginPath();
        g.moveTo(at(message.sent), middle[message.from]);
        g.lineTo(x, to);
        g.stroke();
        g.beginPath();
        g.arc(x, to, 2.5, 0, 7);
        g.fill();
    }
}

function rankWaitsTable(ranks) {
    const waits = objectsOf(ranks.waits).filter(wait => wait.wait_ns > 0), several = new Set(waits.map(wait => wait.communicator)).size > 1;
    if (waits.length === 0) return el('p', null, 'No rank waited for another one.');
    const time = ns => ns > 0 ? { text: duration(ns), title: exactly(ns) } : '–';
    return table('Waits of ranks, longest first', ['rank', 'waited', 'for rank', 'operation', 'tag', ...several ? ['communicator'] : [], 'count', 'bytes', 'until its call', 'until it was ready', 'until it was posted', 'on the way', 'devices idle', 'threads blocked'],
        waits.map(wait => ['rank ' + wait.rank, time(wait.wait_ns), 'rank ' + wait.for_rank, wait.kind, wait.kind === 'send' || wait.kind === 'receive' ? String(wait.tag) : '–',
            ...several ? [String(wait.communicator)] : [], count(wait.count), bytesText(wait.bytes), time(wait.until_call_ns), time(wait.until_ready_ns), time(wait.until_posted_ns),
            time(wait.on_the_way_ns), time(wait.devices_idle_ns), time(wait.threads_blocked_ns)]));
}

function rankNotes(ranks, places) {
    const absent = ranks.ranks - places.length, alone = ranks.sends_without_receive + ranks.receives_without_send + ranks.collectives_alone;
    return [absent > 0 ? count(absent) + (absent === 1 ? ' rank has' : ' ranks have') + ' no file here.' : null,
        ranks.messages_missing > 0 ? 'The traces lack ' + count(ranks.messages_missing) + ' messages, so later messages may meet the wrong ones.' : null,
        alone > 0 ? 'The other side of ' + count(alone) + ' messages is not in the files.' : null,
        ranks.messages_without_sense > 0 ? count(ranks.messages_without_sense) + ' messages would have arrived before they were sent.' : null,
        ranks.clocks_within_ns > 0 ? 'The clocks of the ranks are at most ' + duration(ranks.clocks_within_ns) + ' off.' : null]
        .filter(Boolean).map(text => el('p', { class: 'quiet' }, text));
}

function buildRanks(body, ranks) {
    const places = rankPlaces(ranks), rows = places.reduce((n, place) => n + place.trace.info.devices.length, 0);
    const frame = chart('All ranks on one clock, with messages between them', Math.max(110, 44 + 18 * rows + 8 * places.length), (g, width, height) => drawRanks(g, width, height, ranks, places));
    add(body, rankNotes(ranks, places), frame, categoryLegend(usedCategories(places.map(place => place.trace))),
        el('p', { class: 'quiet' }, 'A line leads from the time at which a rank sends a message to its end on the rank that receives it.'),
        leftOut(ranks.all_messages - Math.min(RANK_ARROWS, ranks.messages.length), 'message is not drawn; it has one of the shortest waits.', 'messages are not drawn; they have the shortest waits.'), rankWaitsTable(ranks));
    return () => frame.redraw();
}
