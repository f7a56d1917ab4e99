/* peers.js - a heat map that shows which device can use the memory of which other device, and how
 * fast; the machine; the findings of the doctor. */

const VERDICTS = { usable: ['✓', '#0072b2'], slow: ['~', '#e69f00'], refused: ['✗', '#8d94a0'], corrupt: ['!', '#d55e00'] };

function verdictOf(pair) {
    return VERDICTS[pair.verdict] || ['?', '#cc79a7'];
}

function pairText(pair) {
    return 'device ' + pair.device + ' uses the memory of device ' + pair.owner + ': ' + pair.verdict;
}

/* The figures that a cell can show, besides the verdict's own rates. */
function peerFigures(data) {
    const out = [{ id: 'direct', text: 'direct, by the test', unit: 'GB/s', get: (d, o, pair) => pair.direct_bytes_per_s > 0 ? pair.direct_bytes_per_s / 1e9 : NaN },
        { id: 'staged', text: 'through pinned memory, by the test', unit: 'GB/s', get: (d, o, pair) => pair.staged_bytes_per_s > 0 ? pair.staged_bytes_per_s / 1e9 : NaN }];
    for (const figure of objectsOf(data.figures)) {
        const values = listOf(figure.values);
        if (values.flat().some(value => typeof value === 'number')) {
            out.push({ id: textOf(figure.id), text: plain(figure.text), unit: textOf(figure.unit), get: (d, o) => {
                const value = values[d] && values[d][o];
                return typeof value === 'number' ? value : NaN;
            } });
        }
    }
    return out;
}

function pairDetails(pair, figures, text) {
    return [el('h3', null, pairText(pair)), facts([
        ['reason', pair.reason || (pair.verdict === 'usable' ? 'all bytes of the test arrived' : 'no reason is given')], ['to do', pair.remedy],
        ['path', textOf(pair.path)], ['atomic operations', pair.atomics === undefined ? null : pair.atomics ? 'yes' : 'no'],
        ['the driver’s code', pair.driver_code ? plain(pair.driver_code) + ' ' + textOf(pair.driver_code_name) : null],
        ...figures.map(figure => {
            const value = figure.get(pair.device, pair.owner, pair);
            return [figure.text, Number.isNaN(value) ? null : text(value) + ' ' + figure.unit];
        })])];
}

function peerMatrix(list, figure, onPair) {
    const pairs = new Map(list.map(pair => [pair.device + '>' + pair.owner, pair]));
    const n = Math.max(0, ...list.flatMap(pair => [pair.device + 1, pair.owner + 1]));
    const values = [...pairs.values()].map(pair => figure.get(pair.device, pair.owner, pair)).filter(v => !Number.isNaN(v));
    const most = Math.max(...values, 1e-9), rows = [];
    for (let d = 0; d < n; d++) {
        const cells = [el('th', { scope: 'row', class: 'text' }, 'device ' + d)];
        for (let o = 0; o < n; o++) {
            const pair = pairs.get(d + '>' + o);
            if (!pair) {
                cells.push(el('td', { class: 'cell' }, d === o ? 'itself' : '–'));
                continue;
            }
            const [sign, hex] = verdictOf(pair), value = figure.get(d, o, pair);
            const cell = el('td', { class: 'cell' }, el('button', { type: 'button', title: pairText(pair) + (pair.reason ? '\n' + pair.reason : ''), on: { click: () => onPair(pair) } },
                sign + ' ' + pair.verdict, el('small', null, Number.isNaN(value) ? 'not measured' : significant(value) + ' ' + figure.unit)));
            const share = Number.isNaN(value) ? 0.25 : figure.unit.endsWith('/s') ? value / most : Math.min(...values) / Math.max(value, 1e-9);
            cell.style.background = 'color-mix(in srgb, ' + colour('back') + ' ' + Math.round(92 - 55 * share) + '%, ' + hex + ')';
            cells.push(cell);
        }
        rows.push(el('tr', null, cells));
    }
    const heads = [el('th', { class: 'text' }, 'uses ↓ the memory of →')];
    for (let o = 0; o < n; o++) heads.push(el('th', { scope: 'col' }, 'device ' + o));
    return el('div', { class: 'scroll' }, el('table', { id: 'peer-map' }, el('thead', null, el('tr', null, heads)), el('tbody', null, rows)));
}

function buildPeers(body, data) {
    const pairs = pairsOf(data), figures = peerFigures(data), holder = el('div'), details = el('div', { class: 'detail empty', 'aria-live': 'polite', id: 'pair' });
    let figure = figures.find(f => f.id === 'ce_write') || figures[0];
    const show = pair => details.classList.remove('empty') || details.replaceChildren(...pairDetails(pair, figures, significant));
    const draw = () => holder.replaceChildren(peerMatrix(pairs, figure, show));
    const choice = el('select', { id: 'peer-figure', on: { change: () => {
        figure = figures[choice.selectedIndex];
        draw();
    } } }, figures.map(f => el('option', { value: f.id, selected: f === figure }, f.text + ' (' + f.unit + ')')));
    add(body, el('div', { class: 'bar' }, el('label', { for: 'peer-figure' }, 'Shown'), choice), holder,
        el('p', { class: 'quiet' }, 'A stronger colour means a faster pair. ✓ usable, ~ slow, ✗ refused, ! loses bytes, ? inconclusive. Sign, word and colour show the same verdict.'), details);
    add(body, leftOut(listOf(data.pairs).length - pairs.length, 'pair makes no sense and is not shown.', 'pairs make no sense and are not shown.'));
    const troubled = pairs.filter(pair => pair.reason || pair.remedy);
    details.append(el('p', { class: 'quiet screen' }, pairs.length > 0 ? 'Select a pair to see its reason and its remedy here.' : listOf(data.pairs).length > 0 ? 'No pair can be shown.' : 'There is only one device.'));
    if (troubled.length > 0) {
        add(body, table('Pairs with a reason or a remedy', ['pair', 'verdict', 'reason', 'to do'],
            troubled.map(pair => [pair.device + ' → ' + pair.owner, { text: pair.verdict, class: 'text' }, { text: pair.reason, class: 'text' }, { text: pair.remedy || '–', class: 'text' }])));
    }
    if (figures.length > 1 && pairs.length > 0) add(body, asTable(() => figuresTable(pairs, figures), 'Every figure of the pairs as a table'));
    draw();
    return whenColoursChange(draw);
}

/* A table with one row for each figure, since there are many pairs. A row shows the lowest and the
 * highest value with their pairs. */
function figuresTable(pairs, figures) {
    const rows = figures.map(figure => {
        const list = pairs.map(pair => [figure.get(pair.device, pair.owner, pair), pair]).filter(([value]) => !Number.isNaN(value)).sort((a, b) => a[0] - b[0]);
        const text = at => list.length > 0 ? significant(list[at][0]) + ' ' + figure.unit + ', ' + list[at][1].device + ' → ' + list[at][1].owner : '–';
        const middle = quantile(list.map(([value]) => value), 0.5);
        return [figure.text, String(list.length), text(0), Number.isNaN(middle) ? '–' : significant(middle) + ' ' + figure.unit, text(list.length - 1)];
    });
    return table('To see the figures of one pair, select the pair', ['figure', 'pairs', 'lowest', 'median', 'highest'], rows);
}

/* The devices whose memory a device can use: by the verdicts of the pairs, or without pairs by the
 * driver's report. */
function peersOf(data, device) {
    const own = listOf(data.pairs).length > 0 ? pairsOf(data).filter(pair => pair.device === device.device && ['usable', 'slow'].includes(pair.verdict)).map(pair => pair.owner) : listOf(device.peers);
    return own.map(other => 'device ' + plain(other)).join(', ') || 'none';
}

function buildMachine(body, data) {
    const machine = data.machine || {}, runtime = data.runtime || {}, size = bytes => bytes > 0 ? bytesText(bytes) : null;
    add(body, facts([['processor', textOf(machine.cpu)], ['processors', textOf(machine.processors)], ['memory', size(machine.memory_bytes)],
        ['NUMA nodes', textOf(machine.numa_nodes)], ['system', textOf(machine.system)], ['driver', runtime.driver ? plain(runtime.driver) + ' ' + textOf(runtime.driver_version) : null],
        ['Heddle', textOf(data.heddle)], ['placement', textOf(runtime.placement)], ['date', textOf(data.date)]]));
    const devices = objectsOf(runtime.devices), head = listOf(data.pairs).length > 0 ? 'uses the memory of' : 'reaches, as the driver reports';
    if (devices.length > 0) {
        add(body, table('Devices', ['device', 'bus', 'memory', 'NUMA node', head], devices.map(device => [plain(device.device) + ': ' + plain(device.name), plain(device.bus_id),
            size(device.memory_bytes), device.numa_node >= 0 ? plain(device.numa_node) : '–', { text: peersOf(data, device), class: 'text' }])));
    }
    const measured = objectsOf(data.links).filter(link => listOf(link.values).some(v => typeof v === 'number'));
    if (measured.length > 0) {
        const n = Math.min(DEVICES, Math.max(...measured.map(link => link.values.length)));
        add(body, table('Links', ['link', ...Array.from({ length: n }, (_, d) => 'device ' + d)],
            measured.map(link => [plain(link.text), ...link.values.slice(0, n).map(v => typeof v === 'number' ? significant(v) + ' ' + textOf(link.unit) : '–')])));
    }
    const system = objectsOf(data.system);
    if (system.length > 0) {
        add(body, table('What the system reports', ['fact', 'device', 'state', 'text', 'to do'], system.map(fact =>
            [plain(fact.name), plain(fact.device), { text: plain(fact.state), class: 'text' }, { text: plain(fact.text), class: 'text' }, { text: textOf(fact.remedy) || '–', class: 'text' }])));
    }
}

/* Merges facts of several devices or pairs into one entry if their texts are the same. */
function alike(facts) {
    const found = new Map();
    for (const [key, value] of Object.entries(facts || {})) {
        const pattern = key.replace(/\.\d+(?=\.)/g, '.N'), text = plain(value), same = found.get(pattern + ' ' + text);
        if (same) same.count++;
        else found.set(pattern + ' ' + text, { key, pattern, text, count: 1 });
    }
    return [...found.values()].map(fact => [fact.count > 1 ? fact.pattern + ' (' + fact.count + ' times)' : fact.key, fact.text]);
}

/* Checks that lack a fact, by the reason. */
function uncheckedRows(gaps) {
    const rows = new Map();
    for (const gap of gaps) {
        const reason = plain(gap.reason), row = rows.get(reason) || { facts: new Set(), checks: new Set() };
        row.facts.add(plain(gap.fact));
        row.checks.add(plain(gap.id));
        rows.set(reason, row);
    }
    return [...rows].map(([reason, row]) => [reason, { text: [...row.checks].join(', '), class: 'text' }, { text: [...row.facts].join(', '), class: 'text' }]);
}

/* Shows the findings of `heddle doctor --json`, the worst first, and the checks that could not be
 * made. */
function buildDoctor(body, data) {
    const rank = { error: 0, warning: 1 }, findings = (data.findings || []).filter(f => f && typeof f === 'object');
    const gaps = (Array.isArray(data.not_checked) ? data.not_checked : []).filter(gap => gap && typeof gap === 'object');
    if (findings.length === 0) add(body, el('p', { class: 'quiet' }, 'Nothing is wrong' + (gaps.length > 0 ? ' in what was checked.' : '.')));
    for (const finding of findings.sort((a, b) => (rank[a.severity] ?? 2) - (rank[b.severity] ?? 2))) {
        const severity = plain(finding.severity), devices = finding.devices || finding.pairs || [], buses = finding.buses || [];
        const evidence = alike(finding.evidence).map(([key, text]) => key + ': ' + text).join('\n');
        const where = devices.length > 0 ? (finding.pairs ? 'pairs ' : 'device ') + devices.slice(0, 12).map((d, i) => Array.isArray(d) ? d.join('→') : d + (buses[i] ? ' (' + plain(buses[i]) + ')' : '')).join(', ') +
            (devices.length > 12 ? ' and ' + (devices.length - 12) + ' more' : '') : '';
        add(body, findingCard(plain(finding.title || finding.id), severity, severity, finding.why ? plain(finding.why) : '', '', [
            where ? el('p', { class: 'quiet' }, 'Of ' + where + '.') : null,
            finding.fix ? el('p', null, 'To do' + (finding.fix_needs_root ? ', as root' : '') + ': ', el('code', null, plain(finding.fix))) : null,
            evidence ? el('details', null, el('summary', null, 'Evidence'), el('pre', null, evidence)) : null]));
    }
    const areas = Object.entries(data.areas || {}), missing = Object.keys(data.missing || {}).length;
    if (areas.length > 0) add(body, table('What was looked at', ['area', 'outcome'], areas.map(([area, text]) => [area, { text: plain(text), class: 'text' }])));
    if (gaps.length > 0) add(body, table('What was not checked', ['why', 'checks', 'facts that they lack'], uncheckedRows(gaps)));
    if (missing > 0) {
        add(body, asTable(() => table('', ['fact', 'why it is missing'], alike(data.missing).map(([key, text]) => [key, { text, class: 'text' }])),
            'Facts that could not be had (' + missing + ')'));
    }
}
