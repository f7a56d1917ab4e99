/* losses.js - the story of each loss: the first operation that did not end, the time when the loss
 * was noticed, the time when the device was up again, and the work of the other devices. */

const LOSSES = 20; /* the most losses whose stories are told */

function lossEvents(t, loss) {
    const events = [], op = loss.op, end = loss.ended === null ? t.end : loss.ended;
    if (op >= 0) {
        const submitted = t.col('ops', 'submitted')[op], began = t.col('ops', 'began')[op];
        if (!Number.isNaN(submitted)) events.push([submitted, 'the program submits the first operation that the device does not finish: ', op]);
        if (!Number.isNaN(began) && began < loss.time) events.push([began, 'this operation begins on the device', -1]);
    }
    events.push([loss.time, 'device ' + loss.device + ' is lost' + failedWith(t, loss), -1]);
    if (loss.ended === null) {
        events.push([t.end, 'the trace ends; the device has not come back', -1]);
    } else {
        events.push([loss.ended, 'the device is up again', -1]);
        const first = firstAfter(t, loss.device, end);
        if (first >= 0) events.push([t.opTimes(first)[0], 'the first work after the loss begins: ', first]);
    }
    return events.sort((a, b) => a[0] - b[0]);
}

/* The operations that failed between this loss and the next one: on the lost device, and on other
 * devices that needed its results. */
function failedWith(t, loss) {
    const next = t.info.losses.filter(other => other.time > loss.time).reduce((least, other) => Math.min(least, other.time), Infinity);
    const flags = t.col('ops', 'flags'), lane = t.col('ops', 'lane'), done = t.col('ops', 'done');
    let own = 0, others = 0;
    for (let i = 0; i < flags.length; i++) {
        if (!(flags[i] & 2) || done[i] < loss.time || done[i] >= next) continue;
        if (t.deviceOfLane(lane[i]) === loss.device) own++;
        else others++;
    }
    const words = [own > 0 ? count(own) + ' of its operations' : null, others > 0 ? count(others) + ' of other devices' : null].filter(Boolean);
    return words.length > 0 ? '; ' + words.join(' and ') + ' failed' : '';
}

function firstAfter(t, d, time) {
    const lane = t.col('stretches', 'lane'), began = t.col('stretches', 'began');
    let best = -1;
    for (let i = 0; i < lane.length; i++) {
        if (t.deviceOfLane(lane[i]) === d && began[i] >= time && (best < 0 || began[i] < began[best])) best = i;
    }
    return best < 0 ? -1 : t.col('stretches', 'first_op')[best];
}

/* The work of all devices before a loss, and while the device was gone. */
function othersTable(t, loss) {
    const end = loss.ended === null ? t.end : loss.ended, length = Math.max(1, end - loss.time), before = Math.max(t.begin, loss.time - length);
    return table('The part of the time in which each device computed or moved bytes', ['device', 'before', 'while device ' + loss.device + ' was gone', 'waiting for another device then'],
        t.info.devices.map((device, d) => {
            const a = t.splitBetween(d, before, loss.time), b = t.splitBetween(d, loss.time, end);
            const share = (split, from, to) => to > from ? percent((split[0] + split[1]) / (to - from)) : '–';
            return ['device ' + d + (d === loss.device ? ' (lost)' : ''), share(a, before, loss.time), share(b, loss.time, end), percent(b[3] / length)];
        }));
}

function drawLoss(g, width, height, loss) {
    const t = trace(), end = loss.ended === null ? t.end : loss.ended, room = Math.max(end - loss.time, 1000) * 0.4;
    const from = Math.max(t.begin, loss.time - room), to = Math.min(t.end, end + room), box = { x: 70, y: 16, w: width - 80, h: height - 40 };
    const h = box.h / t.info.devices.length;
    const x = time => box.x + (time - from) / (to - from) * box.w;
    timeAxis(g, box, from, to);
    t.info.devices.forEach((_, d) => {
        const y = box.y + d * h;
        g.fillStyle = colour('soft');
        g.font = '11px system-ui, sans-serif';
        g.fillText('device ' + d, 6, y + h / 2);
        for (let px = 0; px < box.w; px++) {
            const split = t.splitBetween(d, from + px / box.w * (to - from), from + (px + 1) / box.w * (to - from), columnSplit);
            const sum = split.reduce((a, b) => a + b, 0);
            let top = y + h - 1;
            for (let c = 0; c < CATEGORIES && sum > 0; c++) {
                const part = split[c] / sum * (h - 2);
                g.fillStyle = categoryColour(c);
                g.fillRect(box.x + px, top - part, 1.2, part);
                top -= part;
            }
        }
    });
    g.font = '11px system-ui, sans-serif';
    for (const [time, text] of [[loss.time, 'lost'], [loss.ended, 'up again']]) {
        if (time === null) continue;
        g.fillStyle = colour('mark');
        g.fillRect(x(time) - 1, box.y - 4, 2, box.h + 4);
        g.fillText(text, Math.min(x(time) + 4, width - 50), 8);
    }
}

/* A table of all losses. A single loss needs no table, since its story is enough. */
function lossTable(t) {
    return t.info.losses.length < 2 ? null : table('Every loss', ['device', 'lost', 'gone for', 'message'], t.info.losses.map(loss => ['device ' + loss.device,
        moment(t, loss.time), loss.ended === null ? { text: 'not back', class: null } : duration(loss.ended - loss.time), { text: loss.message || '–', class: 'text' }]));
}

function buildLosses(body) {
    const t = trace(), frames = [];
    add(body, lossTable(t));
    t.info.losses.slice(0, LOSSES).forEach((loss, n) => {
        const frame = chart('Every device around loss ' + (n + 1), Math.max(90, 40 + 22 * t.info.devices.length), (g, width, height) => drawLoss(g, width, height, loss));
        frames.push(frame);
        const took = loss.ended === null ? null : loss.ended - loss.time;
        add(body, el('div', { class: 'one' }, el('h3', null, 'Device ' + loss.device + (took === null ? ' was lost, and has not come back' : ' was gone for ' + duration(took))),
            loss.message ? el('p', { class: 'code' }, loss.message) : null,
            el('ol', { class: 'story' }, lossEvents(t, loss).map(([time, text, op]) => el('li', null, el('b', null, moment(t, time)), text,
                op >= 0 ? linkButton(opLine(t, op), () => {
                    goTo('timeline');
                    selectOp(op, true);
                }) : null))),
            frame, othersTable(t, loss), el('p', { class: 'screen' }, linkButton('Show the loss in the timeline', () => {
                const end = loss.ended === null ? t.end : loss.ended, room = (end - loss.time) * 0.3;
                setWindow(loss.time - room, end + room);
                goTo('timeline');
            }))));
    });
    add(body, leftOut(t.info.losses.length - LOSSES, 'more loss has no story here; the table has it.', 'more losses have no story here; the table has them.'), categoryLegend(usedCategories([t])));
    return () => frames.forEach(frame => frame.redraw());
}
