/* draw.js - functions that all views use to draw: elements, tables, colours with patterns, axes,
 * numbers as text. */

const app = { traces: [], current: 0, from: 0, to: 1, selected: null, views: [], printing: false, errors: [] };

/* ---------------------------------------------------------------------------------------------------------- elements */

/* Makes an element: el('p', {class: 'note'}, 'text', child). The text never becomes markup. */
function el(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
        if (key === 'on') {
            for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
        } else if (value === true) {
            element.setAttribute(key, '');
        } else if (value !== false && value !== null && value !== undefined) {
            element.setAttribute(key, value);
        }
    }
    add(element, ...children);
    return element;
}

/* Appends children, but leaves out null, which append() would write as the word "null". */
function add(parent, ...children) {
    parent.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
}

function button(text, handler, attributes) {
    return el('button', { type: 'button', on: { click: handler }, ...attributes }, text);
}

function linkButton(text, handler, attributes) {
    return button(text, handler, { class: 'link', ...attributes });
}

function count(n) {
    return n.toLocaleString('en-US');
}

/* A note that a view leaves out `n` items; null if it leaves out none. `one` and `several` are the
 * texts behind the number. */
function leftOut(n, one, several, attributes) {
    return n > 0 ? el('p', { class: 'quiet left-out', ...attributes }, count(n) + ' ' + (n === 1 ? one : several)) : null;
}

const PAPER_ROWS = 60; /* on paper, page.css hides the rows behind these */

/* Rows are lists of cells: text, a node, or {text, class, title}. The first column is text.
 * `total`: the number of all rows, if `rows` contains only the first ones. */
function table(caption, heads, rows, most = 200, total = rows.length) {
    const shown = rows.slice(0, most);
    const isText = i => shown.length > 0 && shown[0][i] !== null && typeof shown[0][i] === 'object' && shown[0][i].class === 'text';
    const cell = (value, i) => {
        const plain = value === null || typeof value !== 'object' || value instanceof Node;
        const { text, ...attributes } = plain ? { text: value } : value;
        return el('td', { class: i === 0 ? 'text' : null, ...attributes }, text === null || text === undefined ? '–' : text);
    };
    const out = el('table', null, caption ? el('caption', null, caption) : null,
        el('thead', null, el('tr', null, heads.map((head, i) => el('th', { scope: 'col', class: i === 0 || isText(i) ? 'text' : null }, head)))),
        el('tbody', null, shown.map(row => el('tr', null, row.map(cell)))));
    const long = shown.length > PAPER_ROWS;
    return el('div', { class: 'scroll' }, out, leftOut(total - shown.length, 'more row is not shown.', 'more rows are not shown.', long ? { class: 'quiet left-out screen' } : null),
        long ? leftOut(total - PAPER_ROWS, 'more row is not on paper.', 'more rows are not on paper.', { class: 'left-out paper' }) : null);
}

const NAME = 120; /* the most characters of a name in a table or a line */

/* A cell for a name. The cell shows the begin of a long name, and its title is the whole name. */
function nameCell(name) {
    return short(name, NAME) === name ? { text: name, class: 'text' } : { text: short(name, NAME), title: name, class: 'text' };
}

function facts(pairs) {
    return el('dl', { class: 'facts' }, pairs.filter(pair => pair && pair[1] !== null && pair[1] !== undefined && pair[1] !== '')
        .map(([key, value]) => [el('dt', null, key), el('dd', null, value)]));
}

/* A table beside a chart. `make` runs when the table is opened, also for paper. */
function asTable(make, title = 'The same as a table') {
    const body = el('div');
    const details = el('details', null, el('summary', null, title), body);
    const fill = () => {
        if (details.open) body.replaceChildren(make());
    };
    details.addEventListener('toggle', fill);
    details.refresh = fill;
    return details;
}

/* ----------------------------------------------------------------------------------------------------------- numbers */

function significant(value) {
    const size = Math.abs(value);
    return size >= 100 || value === 0 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function duration(ns) {
    if (ns === null || Number.isNaN(ns)) return '–';
    const size = Math.abs(ns);
    if (size < 1e3) return Math.round(ns) + ' ns';
    if (size < 1e6) return significant(ns / 1e3) + ' µs';
    if (size < 1e9) return significant(ns / 1e6) + ' ms';
    return significant(ns / 1e9) + ' s';
}

/* The text of a time, from the begin of the trace's window. Times that differ by a microsecond get
 * different texts. */
function moment(t, time) {
    const ns = Math.abs(time - t.begin);
    if (Number.isNaN(ns)) return '–';
    const [unit, name, digits] = ns >= 1e9 ? [1e9, 's', 6] : ns >= 1e6 ? [1e6, 'ms', 3] : ns >= 1e3 ? [1e3, 'µs', 1] : [1, 'ns', 0];
    return (ns / unit).toFixed(digits) + ' ' + name + (time < t.begin ? ' before the window' : '');
}

function exactly(ns) {
    return Number.isNaN(ns) || ns === null ? '–' : ns.toLocaleString('en-US') + ' ns';
}

function bytesText(bytes) {
    if (bytes === null || Number.isNaN(bytes)) return '–';
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
    let unit = 0;
    for (; Math.abs(bytes) >= 1024 && unit < 5; unit++) bytes /= 1024;
    return (unit === 0 ? bytes : significant(bytes)) + ' ' + units[unit];
}

function percent(share) {
    return !Number.isFinite(share) ? '–' : share > 0 && share < 0.001 ? '<0.1 %' : (share * 100).toFixed(1) + ' %';
}

function rate(bytesPerSecond) {
    if (!(bytesPerSecond > 0)) return '–';
    const [unit, name] = bytesPerSecond >= 1e8 ? [1e9, 'GB/s'] : bytesPerSecond >= 1e5 ? [1e6, 'MB/s'] : [1e3, 'kB/s'];
    return significant(bytesPerSecond / unit) + ' ' + name;
}

function short(text, most) {
    const characters = Array.from(text);
    return characters.length <= most ? text : isolated(characters.slice(0, most - 1).join('')) + '…';
}

const FROM_THE_RIGHT = /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufeff]|[\ud802\ud803\ud83a\ud83b]/;

/* Isolates a name that contains text from right to left, so that the name does not reverse the text
 * around it. */
function isolated(name) {
    if (!FROM_THE_RIGHT.test(name)) return name;
    const open = (name.match(/[\u2066-\u2068]/g) || []).length - (name.match(/\u2069/g) || []).length;
    return name.startsWith('\u2068') && open === 0 ? name : '\u2068' + name + '\u2069'.repeat(Math.max(0, open) + 1);
}

/* About `count` values between `from` and `to`, in steps of 1, 2 or 5 times a power of ten. */
function steps(from, to, count) {
    const rough = (to - from) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough) || power * 10;
    const out = [];
    for (let i = Math.ceil(from / step); i * step <= to && out.length < 100; i++) out.push(i * step);
    return { step, values: out };
}

/* The text of a time on an axis, with as many digits as the axis needs. */
function timeTick(ns, step) {
    const [unit, name] = step >= 1e9 ? [1e9, 's'] : step >= 1e6 ? [1e6, 'ms'] : step >= 1e3 ? [1e3, 'µs'] : [1, 'ns'];
    const digits = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
    return (ns / unit).toLocaleString('en-US', { minimumFractionDigits: Math.min(digits, 6), maximumFractionDigits: Math.min(digits, 6) }) + ' ' + name;
}

/* ----------------------------------------------------------------------------------------------------------- colours */

/* The categories of a device's time. Each is shown by a colour, a letter and a pattern, and any one
 * of these is enough to recognise it. */
const CATEGORY = [
    { text: 'compute', letter: '', light: '#1f6fb4', dark: '#3b8fd6', pattern: 'none' },
    { text: 'transfer', letter: 'X', light: '#56b4e9', dark: '#7cc7f2', pattern: 'dots' },
    { text: 'idle: device lost or coming back', letter: 'L', light: '#3a3f47', dark: '#f2f2f2', pattern: 'cross' },
    { text: 'idle: waits for another device', letter: 'D', light: '#d55e00', dark: '#f0813a', pattern: 'rising' },
    { text: 'idle: waits for a transfer', letter: 'T', light: '#e69f00', dark: '#f2b632', pattern: 'falling' },
    { text: 'idle: waits for claimed bytes', letter: 'C', light: '#cc79a7', dark: '#dd92bc', pattern: 'upright' },
    { text: 'idle: ring full', letter: 'R', light: '#e8da2b', dark: '#f0e442', pattern: 'level' },
    { text: 'idle: memory', letter: 'M', light: '#009e73', dark: '#25bd92', pattern: 'cross' },
    { text: 'idle: work on its way to the device', letter: 'O', light: '#8d94a0', dark: '#858d9b', pattern: 'rising' },
    { text: 'idle: nothing was submitted', letter: 'N', light: '#e4e7ec', dark: '#2c323c', pattern: 'none' },
    { text: 'idle: unknown, because waits are missing', letter: 'U', light: '#b9a7d6', dark: '#9a86bd', pattern: 'dots' },
];
const STACK = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#b8ab00', '#7a5bb5', '#8d94a0'];

function isDark() {
    return !app.printing && document.documentElement.dataset.theme === 'dark';
}

function colour(name) {
    if (app.printing) return { back: '#ffffff', panel: '#f6f7f9', line: '#d5d9e0', text: '#1b1f27', soft: '#5a6372', mark: '#c2185b' }[name];
    return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

function categoryColour(c) {
    return isDark() ? CATEGORY[c].dark : CATEGORY[c].light;
}

function brightness(hex) {
    const n = parseInt(hex.slice(1), 16);
    return (n >> 16) * 0.299 + (n >> 8 & 255) * 0.587 + (n & 255) * 0.114;
}

function inkOn(hex) {
    return brightness(hex) > 140 ? '#111418' : '#ffffff';
}

const patterns = new Map();

/* A fill style: a colour with a pattern on it. */
function patternFill(context, hex, kind) {
    if (kind === 'none') return hex;
    const key = hex + kind;
    if (!patterns.has(key)) {
        const tile = document.createElement('canvas');
        tile.width = tile.height = 8;
        const g = tile.getContext('2d');
        g.fillStyle = hex;
        g.fillRect(0, 0, 8, 8);
        g.strokeStyle = g.fillStyle = brightness(hex) > 140 ? 'rgba(0,0,0,.38)' : 'rgba(255,255,255,.5)';
        g.lineWidth = 1.3;
        const line = (a, b, c, d) => {
            g.beginPath();
            g.moveTo(a, b);
            g.lineTo(c, d);
            g.stroke();
        };
        if (kind === 'rising' || kind === 'cross') for (const s of [-8, 0, 8]) line(s, 8, s + 8, 0);
        if (kind === 'falling' || kind === 'cross') for (const s of [-8, 0, 8]) line(s, 0, s + 8, 8);
        if (kind === 'upright') line(4, 0, 4, 8);
        if (kind === 'level') line(0, 4, 8, 4);
        if (kind === 'dots') g.fillRect(3, 3, 2, 2);
        patterns.set(key, tile);
    }
    return context.createPattern(patterns.get(key), 'repeat');
}

function legend(items) {
    return el('ul', { class: 'legend' }, items.map(item => {
        const canvas = el('canvas', { 'aria-hidden': 'true' });
        const draw = () => {
            const g = sized(canvas, 22, 14);
            const hex = item.colour();
            g.fillStyle = patternFill(g, hex, item.pattern || 'none');
            g.fillRect(0, 0, 22, 14);
            if (item.letter) letterOn(g, item.letter, 11, 7, hex);
        };
        canvas.redraw = draw;
        draw();
        return el('li', null, canvas, item.text);
    }));
}

function categoryLegend(which) {
    return legend(which.map(c => ({ ...CATEGORY[c], colour: () => categoryColour(c) })));
}

/* Draws a letter or a few words on a plate of the colour, so that no pattern disturbs the text. */
function letterOn(g, letter, x, y, hex) {
    g.font = 'bold 10px system-ui, sans-serif';
    g.textAlign = 'center';
    g.textBaseline = 'middle';
    const half = letter.length === 1 ? 5 : g.measureText(letter).width / 2 + 3;
    g.fillStyle = hex;
    g.fillRect(x - half, y - 5.5, 2 * half, 11);
    g.fillStyle = inkOn(hex);
    g.fillText(letter, x, y + 0.5);
    g.textAlign = 'left';
}

/* ------------------------------------------------------------------------------------------------------------ canvas */

/* Sets the size of a canvas. Returns its drawing context, which counts in CSS pixels. */
function sized(canvas, width, height) {
    const scale = app.printing ? 2 : Math.min(2, window.devicePixelRatio || 1);
    const w = Math.max(1, Math.round(width * scale)), h = Math.max(1, Math.round(height * scale));
    if (canvas.width !== w || canvas.height !== h) {
        canvas.width = w;
        canvas.height = h;
    }
    const g = canvas.getContext('2d');
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.clearRect(0, 0, width, height);
    g.textBaseline = 'middle';
    g.font = '12px system-ui, sans-serif';
    return g;
}

/* A chart: a canvas with a name, in a frame. The function draw(g, width, height) draws it. */
function chart(label, height, draw, attributes) {
    const canvas = el('canvas', { role: 'img', 'aria-label': label, ...attributes });
    const frame = el('div', { class: 'canvas' }, canvas);
    canvas.style.height = height + 'px';
    const redraw = () => {
        const width = app.printing ? 1000 : frame.clientWidth;
        if (width > 0) draw(sized(canvas, width, height), width, height, canvas);
    };
    frame.redraw = redraw;
    frame.canvas = canvas;
    return frame;
}

/* Adds keys to a chart, for users without a mouse. `actions` maps a key to its function; `help`
 * describes the keys in words. */
function withKeys(frame, help, actions) {
    const { canvas } = frame;
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'application');
    canvas.setAttribute('aria-label', canvas.getAttribute('aria-label') + '. ' + help);
    canvas.addEventListener('keydown', event => {
        if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || !actions[event.key]) return;
        event.preventDefault();
        actions[event.key]();
    });
    return frame;
}

function clippedText(g, text, x, y, width) {
    if (width < 12) return;
    if (g.measureText(text).width <= width) {
        g.fillText(text, x, y);
        return;
    }
    const characters = Array.from(text);
    let n = Math.min(characters.length, Math.floor(width / 4));
    for (; n > 0 && g.measureText(characters.slice(0, n).join('') + '…').width > width; n--);
    if (n > 2) g.fillText(characters.slice(0, n).join('') + '…', x, y);
}

function verticalAxis(g, box, ticks, text, title) {
    g.font = '11px system-ui, sans-serif';
    g.lineWidth = 1;
    for (const [value, y] of ticks) {
        g.strokeStyle = colour('line');
        g.beginPath();
        g.moveTo(box.x, Math.round(y) + 0.5);
        g.lineTo(box.x + box.w, Math.round(y) + 0.5);
        g.stroke();
        g.fillStyle = colour('soft');
        g.textAlign = 'right';
        g.fillText(text(value), box.x - 5, y);
    }
    g.textAlign = 'left';
    g.fillStyle = colour('soft');
    g.fillText(title, box.x + 4, 8);
}

function horizontalAxis(g, box, ticks, text) {
    g.font = '11px system-ui, sans-serif';
    g.textAlign = 'center';
    let free = -Infinity;
    for (const [value, x] of ticks) {
        g.strokeStyle = colour('line');
        g.beginPath();
        g.moveTo(Math.round(x) + 0.5, box.y);
        g.lineTo(Math.round(x) + 0.5, box.y + box.h + 4);
        g.stroke();
        const label = text(value), half = g.measureText(label).width / 2;
        const at = Math.min(Math.max(x, half + 2), box.x + box.w - half - 2);
        if (at - half > free + 6) {
            g.fillStyle = colour('soft');
            g.fillText(label, at, box.y + box.h + 12);
            free = at + half;
        }
    }
    g.textAlign = 'left';
}

/* An axis of times. Like all other times on the page, they count from the begin of the window. */
function timeAxis(g, box, from, to) {
    const begin = trace().begin;
    from -= begin;
    to -= begin;
    const { step, values } = steps(from, to, box.w / (box.w < 500 ? 60 : 110));
    horizontalAxis(g, box, values.map(t => [t, box.x + (t - from) / (to - from) * box.w]), t => timeTick(t, step));
}

/* For a view that consists of elements: draws the view again only if the colours changed, so that
 * the view keeps its focus and loses no click. */
function whenColoursChange(draw) {
    const look = () => document.documentElement.dataset.theme + app.printing;
    let last = look();
    return () => {
        if (look() !== last) draw();
        last = look();
    };
}

/* ---------------------------------------------------------------------------------------------------------- the tip */

function showTip(event, text) {
    const tip = document.getElementById('tip');
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, window.innerWidth - width - 4)) + 'px';
    tip.style.top = (event.clientY + 18 + height > window.innerHeight ? event.clientY - height - 10 : event.clientY + 18) + 'px';
}

/* -------------------------------------------------------------------------------------------------------------- app */

function trace() {
    return app.traces[app.current] || null;
}

let drawAsked = false;

function askDraw() {
    if (drawAsked) return;
    drawAsked = true;
    requestAnimationFrame(() => {
        drawAsked = false;
        drawAll();
    });
}

function drawAll() {
    for (const view of app.views) if (view.draw && (app.printing || view.near)) view.draw();
}

/* Sets the part of the trace that the views over time show. */
function setWindow(from, to) {
    const t = trace();
    if (!t || !Number.isFinite(from) || !Number.isFinite(to)) return;
    const whole = t.end - t.begin;
    const length = Math.min(Math.max(to - from, Math.min(100, whole)), whole);
    const middle = (from + to) / 2;
    app.from = Math.min(Math.max(middle - length / 2, t.begin), t.end - length);
    app.to = app.from + length;
    askDraw();
}

function zoom(factor, at = (app.from + app.to) / 2) {
    setWindow(at - (at - app.from) * factor, at + (app.to - at) * factor);
}

function pan(share) {
    const by = (app.to - app.from) * share;
    setWindow(app.from + by, app.to + by);
}
