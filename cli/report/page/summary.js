/* summary.js - the first view: the trace in figures, each device's time as a bar, the findings with
 * links into the timeline. */

const PLACEMENTS = ['inline', 'thread', 'process'];
const DETAILS = ['', 'edges of busy stretches', 'each operation', 'edges, and CUPTI'];
const ALONG = ['compute', 'transfer', 'claims', 'on the way to the device', 'the program had not submitted', 'waits that are missing'];

function splitOf(device) {
    return [device.compute, device.transfer, ...device.cause];
}

function splitWords(device) {
    const window = device.end - device.begin;
    return splitOf(device).map((time, c) => time > 0 ? CATEGORY[c].text + ' ' + percent(time / window) : null).filter(Boolean).join(', ');
}

/* A device's time as one bar. */
function splitBar(device, label) {
    const canvas = el('canvas', { role: 'img', 'aria-label': label + ': ' + splitWords(device) });
    canvas.redraw = () => {
        const width = app.printing ? 700 : canvas.clientWidth;
        if (width === 0) return;
        const g = sized(canvas, width, 24), window = Math.max(1, device.end - device.begin);
        let x = 0;
        splitOf(device).forEach((time, c) => {
            const w = time / window * width;
            if (w > 0) {
                const hex = categoryColour(c);
                g.fillStyle = patternFill(g, hex, CATEGORY[c].pattern);
                g.fillRect(x, 0, w, 24);
                const words = (c < 2 ? CATEGORY[c].text : CATEGORY[c].letter) + ' ' + percent(time / window);
                if (w > 28 + 6 * words.length) letterOn(g, words, x + w / 2, 12, hex);
                else if (w > 14 && CATEGORY[c].letter) letterOn(g, CATEGORY[c].letter, x + w / 2, 12, hex);
            }
            x += w;
        });
    };
    return canvas;
}

function splitBars(t, name) {
    return el('div', { class: 'split' }, t.info.devices.map((device, d) => [
        el('div', { class: 'name', title: device.name }, (name ? name + ', ' : '') + 'device ' + d + ' ', el('span', { class: 'quiet' }, device.name)),
        splitBar(device, 'device ' + d),
        el('div', { class: 'quiet' }, percent((device.compute + device.transfer) / Math.max(1, device.end - device.begin)) + ' busy'),
    ]));
}

function usedCategories(traces) {
    return CATEGORY.map((_, c) => c).filter(c => traces.some(t => t.info.devices.some(device => splitOf(device)[c] > 0)));
}

function tile(value, text) {
    return el('div', { class: 'tile' }, el('b', null, value), el('span', null, text));
}

/* Notes about data that the file lacks, so that nobody takes a partial figure for a whole one. */
function gaps(info) {
    return [
        info.cut ? 'The file ends within a record: the program was stopped while it wrote.' : null,
        !info.ended && !info.cut ? 'The program did not end this trace; the file lacks the records of the last moments.' : null,
        info.dropped > 0 ? info.dropped.toLocaleString('en-US') + ' records had no room and are missing.' : null,
        info.ignored > 0 ? info.ignored.toLocaleString('en-US') + ' records make no sense and were left out.' : null,
        info.lost_waits > 0 ? info.lost_waits.toLocaleString('en-US') + ' waits are missing.' : null,
        info.unknown_ops > 0 ? info.unknown_ops.toLocaleString('en-US') + ' operations wait for work that is missing in the trace, or their waits are missing; the cause of idle time in front of them is unknown.' : null,
        info.unplaced > 0 ? info.unplaced.toLocaleString('en-US') + ' operations have no time on their device.' : null,
    ].filter(Boolean);
}

function buildSummary(body) {
    const t = trace(), info = t.info;
    const busy = info.devices.reduce((sum, d) => sum + d.compute + d.transfer, 0);
    const whole = info.devices.reduce((sum, d) => sum + d.end - d.begin, 0);
    add(body, el('div', { class: 'tiles' },
        tile(duration(info.end - info.begin), 'window'),
        tile(String(info.devices.length), info.devices.length === 1 ? 'device' : 'devices'),
        tile(whole > 0 ? percent(busy / whole) : '–', 'of their time busy'),
        tile(t.count('ops').toLocaleString('en-US'), 'operations'),
        tile(count(transferCount(t)), 'transfers'),
        tile(count(memoryCount(t)), 'allocations and frees'),
        tile(String(info.losses.length), info.losses.length === 1 ? 'loss' : 'losses')));
    add(body, gaps(info).map(text => el('p', { class: 'note' }, text)));
    add(body, splitBars(t), categoryLegend(usedCategories([t])));
    const window = Math.max(1, info.end - info.begin);
    if (t.count('critical') > 0) {
        add(body, el('p', null, 'The critical path: ' + ALONG.map((text, i) => info.along[i] > 0 ?
            text + ' ' + duration(info.along[i]) + ' (' + percent(info.along[i] / window) + ')' : null).filter(Boolean).join(', ') + '. ',
        linkButton('show the path in the timeline', () => {
            lanes.critical = true;
            lanes.refreshButtons();
            setWindow(t.begin, t.end);
            goTo('timeline');
        })));
    }
    add(body, launchTable(t), el('details', null, el('summary', null, 'About the trace'), facts([
        ['file', t.name], ['placement', PLACEMENTS[info.placement]], ['measured', DETAILS[info.detail]],
        ['process', String(info.process)], ['begun', new Date(info.seconds_since_1970 * 1000).toISOString().replace('.000', '')],
        ['records', info.records.toLocaleString('en-US')],
        ...info.devices.map((d, i) => ['device ' + i, d.name + (d.bus ? ', ' + d.bus : '') + (d.is_host ? ', a host device' : '') + ', ' +
            bytesText(d.memory) + ', its clock is known within ' + duration(d.clock_within)]),
        ['options', info.options.map(i => t.nameOf(i)).join('  ')],
    ])));
}

function launchTable(t) {
    if (t.info.launches.length === 0) return null;
    const launches = t.info.launches.slice().sort((a, b) => b.total + b.shared - a.total - a.shared);
    const details = asTable(() => table('Sum to longest: launches with a measured time. In stretches: the other launches, each with an equal share of the time of its stretch',
        ['kernel', 'launches', 'sum', 'median', 'p99', 'longest', 'in stretches', 'submit to begin, median', 'p99'],
        launches.map(l => [nameCell(t.nameOf(l.kernel) || '(no name)'), l.count.toLocaleString('en-US'), l.measured ? duration(l.total) : '–',
            l.measured ? duration(l.median) : '–', l.measured ? duration(l.p99) : '–', l.measured ? duration(l.most) : '–',
            (l.mixed ? 'about ' : '') + duration(l.shared), ...[l.begin_p50, l.begin_p99].map(duration)])), 'Kernels (' + launches.length + ')');
    return details;
}

function findingCard(title, kind, gain, evidence, remedy, more) {
    return el('article', { class: 'finding ' + kind }, el('h3', null, gain ? el('span', { class: 'gain' }, gain) : null, title),
        evidence ? el('p', { class: 'evidence' }, evidence) : null, remedy ? el('p', null, 'To do: ' + remedy) : null, more);
}

/* Shows a finding in the timeline: its longest gap, or else its operation. */
function showFinding(t, finding) {
    goTo('timeline');
    if (finding.gap) {
        selectPiece(finding.gap.device, t.pieceAt(finding.gap.device, finding.gap.begin), true);
    } else {
        selectOp(finding.op, true);
    }
}

function hasPlace(finding) {
    return finding.gap !== undefined || finding.op >= 0;
}

/* The number of allocations and frees. A new label of a buffer adds two rows, which do not
 * count. */
function memoryCount(t) {
    return t.col('memory', 'flags').reduce((sum, flags) => sum + (flags & 2 ? 0 : 1), 0);
}

/* The number of copies, and of transfers by the host. */
function transferCount(t) {
    return t.info.links.reduce((sum, link) => sum + link.count, 0);
}

function buildFindings(body) {
    const t = trace();
    if (t.info.findings.length === 0) {
        add(body, el('p', { class: 'quiet' }, t.count('ops') > 0 ? 'No findings: nothing in the trace is worth a change.' : 'No findings, because the trace contains no operations.'));
    }
    for (const group of findingGroups(t)) {
        const [first, ...others] = group;
        add(body, findingCard(first.title, first.gain > 0 ? '' : 'warning', first.gain > 0 ? 'up to ' + duration(first.gain) : '', first.evidence, first.remedy, [
            hasPlace(first) ? el('p', { class: 'screen' }, findingLink(t, first, 'Show it in the timeline')) : null, others.length > 0 ? alikeFindings(t, others) : null]));
    }
}

/* Groups findings of one kind, as `heddle trace` does. The finding that stands for all of them
 * comes first. */
function findingGroups(t) {
    const groups = new Map();
    for (const finding of t.info.findings) {
        if (!groups.has(finding.first)) groups.set(finding.first, []);
        groups.get(finding.first).push(finding);
    }
    return [...groups.values()];
}

function findingLink(t, finding, text) {
    return linkButton(text, () => showFinding(t, finding), { 'data-finding': finding.id });
}

function alikeFindings(t, findings) {
    const devices = [...new Set(findings.filter(f => f.device >= 0).map(f => 'device ' + f.device))];
    const where = devices.length === 0 ? '' : ': ' + devices.slice(0, 8).join(', ') + (devices.length > 8 ? ' and ' + count(devices.length - 8) + ' more' : '');
    return asTable(() => table('Each has the same remedy', ['finding', 'up to', 'evidence'], findings.map(f => [
        hasPlace(f) ? findingLink(t, f, f.title) : f.title, f.gain > 0 ? duration(f.gain) : '–', { text: f.evidence || '–', class: 'text' }])),
    'The same ' + (findings.length === 1 ? 'once' : count(findings.length) + ' times') + ' more' + where);
}
