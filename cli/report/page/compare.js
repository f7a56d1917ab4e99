/* compare.js - compares two runs side by side. For traces, it shows how devices spent their time, the causes
 * and the findings. For benchmarks, it shows each figure with its ratio. */

/* ----------------------------------------------------------------------------------------------------------- traces */

function totals(t) {
    const out = new Float64Array(CATEGORIES);
    for (const device of t.info.devices) splitOf(device).forEach((time, c) => { out[c] += time; });
    return out;
}

function change(before, after, less) {
    if (!(before > 0) || !(after > 0)) return { text: before === after ? '=' : before > 0 ? 'gone' : 'new' };
    const ratio = after / before, better = less === 0 ? 0 : less < 0 ? ratio < 0.95 : ratio > 1.05, worse = less === 0 ? 0 : less < 0 ? ratio > 1.05 : ratio < 0.95;
    return { text: (ratio >= 100 ? ratio.toFixed(0) : ratio.toFixed(2)) + ' ×' + (better ? ' better' : worse ? ' worse' : ''), class: better ? 'better' : worse ? 'worse' : null };
}

function compareTraces(body, a, b) {
    const names = [a.name === b.name ? a.name + ' (first)' : a.name, a.name === b.name ? b.name + ' (second)' : b.name];
    add(body, el('div', { class: 'two' }, [a, b].map((t, i) => el('div', null, el('h3', null, short(names[i], 80)), splitBars(t)))), categoryLegend(usedCategories([a, b])));
    const x = totals(a), y = totals(b);
    const rows = [['window', { text: duration(a.end - a.begin) }, { text: duration(b.end - b.begin) }, change(a.end - a.begin, b.end - b.begin, -1)]];
    CATEGORY.forEach((category, c) => {
        if (x[c] > 0 || y[c] > 0) {
            rows.push([category.text, { text: duration(x[c]), title: exactly(x[c]) }, { text: duration(y[c]), title: exactly(y[c]) }, change(x[c], y[c], c < 2 ? 0 : -1)]);
        }
    });
    for (const [text, of] of [['operations', t => t.count('ops')], ['transfers', transferCount], ['losses', t => t.info.losses.length]]) {
        rows.push([text, of(a).toLocaleString('en-US'), of(b).toLocaleString('en-US'), change(of(a), of(b), 0)]);
    }
    add(body, table('Times are sums over all devices', ['', names[0], names[1], 'second over first'], rows));
    add(body, findingsBeside(a, b, names));
}

/* A row for each kind of finding. It shows the finding with the largest gain of all devices. */
function findingsBeside(a, b, names) {
    const sides = [a, b].map(t => findingGroups(t)), ids = [...new Set(sides.flatMap(groups => groups.map(group => group[0].id)))];
    const text = group => ({ class: 'text', text: !group ? 'not found' : [duration(group[0].gain) + (group.length > 1 ? ', the largest of ' + group.length : ''),
        el('span', { class: 'share quiet' }, group[0].title)] });
    return table('Findings, with the most time that each costs', ['finding', names[0], names[1], 'second over first'], ids.map(id => {
        const [x, y] = sides.map(groups => groups.find(group => group[0].id === id));
        return [{ text: el('code', null, id) }, text(x), text(y),
            !x ? { text: 'new', class: 'worse' } : !y ? { text: 'gone', class: 'better' } : change(x[0].gain, y[0].gain, -1)];
    }));
}

/* -------------------------------------------------------------------------------------------------------- benchmarks */

const NO_FIGURES = new Set(['machine', 'runtime', 'options', 'command', 'run', 'system', 'nvbandwidth', 'rounds', 'min', 'max', 'took_s', 'date', 'heddle', 'benchmark']);

/* Returns -1 if a lower figure is better, such as a time; 1 if a higher figure is better, such as a
 * rate; 0 if neither is known. */
function directionOf(path) {
    const name = path.split(' ').filter(part => !['median', 'value', 'ns'].includes(part) || /_/.test(part)).pop() || '';
    if (/per_s$|gbs$|gflops$|_over_|^share$|GB\/s/.test(name) || /GB\/s/.test(path)) return 1;
    if (/(^|_)(ns|us|ms|s)$|^(ns|us|ms)_per_|_ns_|_us_/.test(name) || / (ns|us)$|\((ns|us)\)/.test(path)) return -1;
    return 0;
}

/* Maps the path of each number in a document to the number. An element of a list appears in the
 * path under its name. */
function flatten(value, path, out) {
    if (typeof value === 'number') {
        out.set(path, value);
    } else if (Array.isArray(value)) {
        const seen = new Map();
        value.forEach((item, i) => {
            if (typeof item === 'number') return; /* numbers directly in a list are values of rounds */
            const name = nameOfItem(item, i), again = (seen.get(name) || 0) + 1;
            seen.set(name, again);
            flatten(item, (path + ' ' + name + (again > 1 ? ' #' + again : '')).trim(), out);
        });
    } else if (value && typeof value === 'object') {
        for (const [key, inner] of Object.entries(value)) {
            if (!NO_FIGURES.has(key) && !(path.startsWith('goals ') && key === 'limit')) flatten(inner, (path + ' ' + key).trim(), out);
        }
    }
    return out;
}

function nameOfItem(item, i) {
    if (!item || typeof item !== 'object') return String(i);
    if (item.id !== undefined) return plain(item.id);
    const words = Object.entries(item).filter(([key, value]) => typeof value === 'string' && key !== 'version' && key !== 'gpu' && key !== 'settings').map(([, value]) => value);
    return [...words, item.threads !== undefined ? item.threads + ' threads' : null].filter(Boolean).join(', ') || String(i);
}

/* All figures of a file. Each value in a matrix of `heddle p2p` is the figure of a pair. */
function figuresOfFile(data) {
    const out = flatten(data, '', new Map());
    for (const figure of objectsOf(data.figures)) {
        listOf(figure.values).forEach((row, d) => [row].flat().forEach((value, o) => {
            if (typeof value === 'number') out.set(textOf(figure.id) + ' ' + d + '→' + o + ' (' + textOf(figure.unit) + ')', value);
        }));
    }
    return out;
}

function number(value) {
    return typeof value !== 'number' ? plain(value) : Number.isInteger(value) ? value.toLocaleString('en-US') : String(Number(value.toPrecision(4)));
}

function goalsTable(files) {
    const all = new Map(files.flatMap(file => objectsOf(file.data.goals)).reverse().map(goal => [goal.id, goal]));
    if (all.size === 0) return null;
    const names = new Map();
    for (const goal of all.values()) names.set(goal.text, (names.get(goal.text) || 0) + 1);
    const state = (goal, data) => !goal ? '–' : { text: number(goal.value) + (data.goals_apply === false ? '' : goal.reached ? ' reached' : ' missed'), class: data.goals_apply === false ? null : goal.reached ? 'better' : 'worse' };
    return table('Goals', ['goal', 'limit', ...files.map(file => short(file.name, 40))], [...all.values()].reverse().map(goal => [{ text: [plain(goal.text || goal.id), names.get(goal.text) > 1 ? el('span', { class: 'share quiet' }, plain(goal.id)) : null] },
        textOf(goal.relation) + ' ' + number(goal.limit) + ' ' + textOf(goal.unit), ...files.map(file => state(objectsOf(file.data.goals).find(g => g.id === goal.id), file.data))]));
}

function compareBench(body, files) {
    const maps = files.map(file => figuresOfFile(file.data)), paths = [...new Set(maps.flatMap(map => [...map.keys()]))].filter(path => !path.startsWith('goals '));
    const two = files.length > 1, holder = el('div');
    add(body, table('', ['', ...files.map((file, i) => short(file.name, 60) + (two ? [' (first)', ' (second)'][i] : ''))], [
        ['benchmark', ...files.map(f => textOf(f.data.benchmark) || 'lines')], ['date', ...files.map(f => plain(f.data.date))], ['Heddle', ...files.map(f => plain(f.data.heddle))],
        ['devices', ...files.map(f => objectsOf((f.data.runtime || {}).devices).map(d => plain(d.name)).join(', ') || '–')]].map(row => row.map((c, i) => i === 0 ? c : { text: c, class: 'text' }))));
    const goals = goalsTable(files);
    if (goals) add(body, goals);
    const rows = paths.map(path => {
        const values = maps.map(map => map.get(path)), ratio = two && values[0] > 0 && values[1] > 0 ? values[1] / values[0] : NaN;
        return { path, values, ratio, off: Number.isNaN(ratio) ? -1 : Math.abs(Math.log(ratio)) };
    });
    const draw = () => {
        const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        const shown = rows.filter(row => words.every(word => row.path.toLowerCase().includes(word)));
        if (order.checked) shown.sort((a, b) => b.off - a.off);
        holder.replaceChildren(table(shown.length + ' figures', ['figure', ...files.map((f, i) => two ? ['first', 'second'][i] : 'value'), ...(two ? ['second over first'] : [])],
            shown.map(row => [row.path, ...row.values.map(number), ...(two ? [change(row.values[0], row.values[1], directionOf(row.path))] : [])]), 250));
    };
    const n = document.querySelectorAll('input[type=search]').length;
    const filter = el('input', { type: 'search', id: 'filter' + n, placeholder: 'words in the figure', on: { input: draw } });
    const order = el('input', { type: 'checkbox', id: 'order' + n, on: { change: draw } });
    add(body, el('div', { class: 'bar' }, el('label', { for: 'filter' + n }, 'Figures'), filter, two ? order : null, two ? el('label', { for: 'order' + n }, 'largest changes first') : null), holder);
    draw();
}
