/* main.js - the page: the views for the given files, the choice of the run, the theme, and
 * paper. */

function goTo(id) {
    const view = document.getElementById(id);
    if (!view) return;
    view.scrollIntoView({ block: 'start' });
    if (id === 'timeline' && lanes.scroller) lanes.scroller.focus({ preventScroll: true });
}

/* Adds a view of a report. The view is built at once, and drawn whenever it is near the visible
 * part of the page. */
function addView(id, title, lead, build) {
    const body = el('div'), section = el('section', { class: 'view', id, 'aria-labelledby': id + '-title', tabindex: '-1' },
        el('h2', { id: id + '-title' }, title), lead ? el('p', { class: 'lead' }, lead) : null, body);
    document.getElementById('main').append(section);
    document.getElementById('nav').append(el('a', { href: '#' + id }, title));
    const view = { id, section, near: false, draw: null, built: null };
    try {
        view.built = build(body) || null;
    } catch (error) {
        app.errors.push(id + ': ' + error.message);
        add(body, el('p', { class: 'note' }, 'This view cannot be drawn: ' + error.message));
        console.error(error);
    }
    const own = typeof view.built === 'function' ? view.built : view.built ? view.built.redraw : null;
    view.draw = () => {
        if (own) own();
    };
    view.redraw = () => section.querySelectorAll('canvas').forEach(canvas => canvas.redraw && canvas.redraw());
    app.views.push(view);
    return view;
}

function addTraceViews() {
    const t = trace(), info = t.info;
    addView('findings', 'Findings', 'Problems worth a change, each with the most time that a change can save.', buildFindings);
    addView('summary', 'Summary', 'How every device spent its time.', buildSummary);
    if (info.devices.length > 0) {
        addView('timeline', 'Timeline', 'All devices over time: for each device, a strip of its work, and its lanes.', body => {
            buildLanes(body);
            return drawLanes;
        });
        addView('idle', 'Idle time', 'How long each device was idle, by cause and by the device for which it waited.', buildMatrix);
    }
    if (poolsOf(t).length > 0) {
        addView('memory', 'Memory', 'The memory of buffers over time, by label.', buildMemory);
    }
    if (t.count('transfers') > 0 || info.links.length > 0) {
        addView('transfers', 'Transfers', 'The size and speed of each transfer, and the peak of its path.', buildTransfers);
    }
    if (t.count('ops') > 0) {
        addView('submits', 'Submits', 'How long operations took after their submit, and how full the rings of lanes were.', buildSubmits);
    }
    if (info.losses.length > 0) {
        addView('losses', 'Losses', 'Each loss of a device, with the events before and after it in order.', buildLosses);
    }
}

/* Shows two benchmarks of one kind side by side, and the others alone. */
function addBenchViews(files) {
    const left = files.slice();
    for (let n = 1; left.length > 0; n++) {
        const first = left.shift(), kind = f => textOf(f.data.benchmark) || 'lines', at = left.findIndex(f => kind(f) === kind(first));
        const second = at >= 0 ? left.splice(at, 1)[0] : null;
        addView('bench' + n, 'Benchmark ' + kind(first), second ? 'Two results of this benchmark side by side.' : 'The figures of this benchmark.', body => compareBench(body, second ? [first, second] : [first]));
    }
}

/* The first file of each machine. Another file of the same machine would only repeat the facts. */
function machines(files) {
    const found = new Map();
    for (const file of files) {
        const { machine } = file.data;
        if (!machine || typeof machine !== 'object') continue;
        const key = JSON.stringify([machine.cpu, machine.processors, machine.system]);
        if (!found.has(key)) found.set(key, file);
    }
    return [...found.values()];
}

function buildViews() {
    document.getElementById('main').replaceChildren();
    document.getElementById('nav').replaceChildren();
    Object.assign(app, { views: [], selected: null });
    const data = kind => app.files.filter(file => file.kind === kind);
    if (trace()) {
        app.from = trace().begin;
        app.to = trace().end;
    }
    data('doctor').forEach((file, i) => addView('doctor' + (i || ''), 'Doctor', 'Faults and slow settings of the machine, and their remedies.', body => buildDoctor(body, file.data)));
    if (app.ranks && !app.ranks.error) addView('ranks', 'Ranks', 'All ranks on one clock, and which rank waited for which message.', body => buildRanks(body, app.ranks));
    if (trace()) addTraceViews();
    if (app.traces.length > 1 && (!app.ranks || app.ranks.error)) {
        const other = app.current === 0 ? 1 : app.current;
        addView('compare', 'Two runs', 'The first trace beside ' + (app.traces.length > 2 ? 'the chosen trace.' : 'the second trace.'), body => {
            if (app.ranks) add(body, el('p', { class: 'note' }, 'These traces are not the ranks of one run: ' + app.ranks.error + '.'));
            compareTraces(body, app.traces[0], app.traces[other]);
        });
    }
    data('p2p').forEach((file, i) => addView('peers' + (i || ''), 'Peers', 'Which device can use the memory of which other device, and how fast.', body => buildPeers(body, file.data)));
    machines([...data('p2p'), ...data('info'), ...data('doctor')]).forEach((file, i) =>
        addView('machine' + (i || ''), 'Machine', 'Facts from ' + file.name + '.', body => buildMachine(body, file.data)));
    addBenchViews(data('p2p').length > 1 ? [...data('bench'), ...data('p2p')] : data('bench'));
    watchViews();
}

let watcher = null;

function watchViews() {
    if (watcher) watcher.disconnect();
    watcher = new IntersectionObserver(entries => {
        for (const entry of entries) {
            const view = app.views.find(v => v.section === entry.target);
            if (!view) continue;
            view.near = entry.isIntersecting;
            if (view.near) {
                view.redraw();
                view.draw();
            }
        }
    }, { rootMargin: '300px' });
    for (const view of app.views) watcher.observe(view.section);
}

function setTheme(name) {
    document.documentElement.dataset.theme = name;
    document.getElementById('theme').textContent = name === 'dark' ? 'Light' : 'Dark';
    patterns.clear();
    redrawAll();
}

function redrawAll() {
    for (const view of app.views) {
        if (!view.near && !app.printing) continue;
        view.redraw();
        view.draw();
    }
    document.querySelectorAll('#main canvas').forEach(canvas => canvas.redraw && canvas.redraw());
}

/* Prepares the page for paper: all views, in the light theme, with open tables. */
function beforePrint() {
    if (app.printing) return;
    app.printing = true;
    patterns.clear();
    app.theme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = 'light';
    app.closed = [...document.querySelectorAll('details:not([open])')];
    for (const details of app.closed) {
        details.open = true;
        if (details.refresh) details.refresh();
    }
    const paper = document.getElementById('lanes-paper');
    if (paper) printLanes(paper);
    for (const view of app.views) if (view.built && view.built.beforePrint) view.built.beforePrint();
    redrawAll();
}

function afterPrint() {
    if (!app.printing) return;
    app.printing = false;
    patterns.clear();
    for (const details of app.closed) details.open = false;
    for (const view of app.views) if (view.built && view.built.afterPrint) view.built.afterPrint();
    setTheme(app.theme);
}

function chooseRun(index) {
    app.current = index;
    buildViews(); /* the control for this choice is in no view, so it keeps the focus */
}

function buildTools() {
    const tools = document.getElementById('tools');
    if (app.traces.length > 1) {
        tools.append(el('label', { for: 'run' }, app.ranks && !app.ranks.error ? 'Rank' : 'Run'), el('select', { id: 'run', on: { change: event => chooseRun(event.target.selectedIndex) } },
            app.traces.map((t, i) => el('option', null, (t.info.rank === null ? i + 1 : 'rank ' + t.info.rank) + ': ' + short(t.name, 60)))));
    }
    tools.append(button('Dark', () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'), { id: 'theme' }),
        button('Print', () => window.print(), { id: 'print' }));
}

function start() {
    const list = readJson('list');
    app.files = list.files.map(file => file.kind === 'trace' ? file : { ...file, data: readJson(file.id) });
    app.traces = app.files.filter(file => file.kind === 'trace').map(file => new Trace(file));
    app.ranks = document.getElementById('together') ? readJson('together') : null;
    const kinds = { trace: 'a trace', p2p: 'pairs of devices', bench: 'a benchmark', doctor: 'the machine’s findings', info: 'the machine' };
    document.getElementById('what').textContent = app.files.map(file => file.name + ' (' + kinds[file.kind] + ')').join(', ') + '. Made by Heddle ' + list.heddle + '.';
    document.title = 'Heddle report: ' + short(app.files.map(file => file.name).join(', '), 80);
    buildTools();
    const dark = window.matchMedia('(prefers-color-scheme: dark)');
    document.documentElement.dataset.theme = dark.matches ? 'dark' : 'light';
    document.getElementById('theme').textContent = dark.matches ? 'Light' : 'Dark';
    dark.addEventListener('change', () => setTheme(dark.matches ? 'dark' : 'light'));
    buildViews();
    let asked = 0;
    window.addEventListener('resize', () => {
        cancelAnimationFrame(asked);
        asked = requestAnimationFrame(() => {
            if (lanes.scroller && lanes.scroller.isConnected) sizeLanes();
            redrawAll();
        });
    });
    window.addEventListener('beforeprint', beforePrint);
    window.addEventListener('afterprint', afterPrint);
    requestAnimationFrame(() => requestAnimationFrame(() => {
        app.ready = performance.now();
    }));
}

start();
