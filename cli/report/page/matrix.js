/* matrix.js - idle time: a row per device with its reasons for waiting, exact to the nanosecond. */

function shade(cell, share) {
    if (share > 0) cell.style.background = 'color-mix(in srgb, ' + colour('back') + ' ' + Math.round(100 - Math.min(1, share) * 55) + '%, #d55e00)';
}

const MATRIX_ALL = 8; /* with at most this many devices, each device gets a column, even if nothing waited for it */

/* The devices that get a column. */
function waitedFor(devices) {
    const all = devices.map((_, d) => d);
    return devices.length <= MATRIX_ALL ? all : all.filter(d => devices.some(device => device.for_device[d] > 0));
}

function matrixHead(shown, causes) {
    const head = text => el('th', { scope: 'col', rowspan: '2', class: text === 'idle device' ? 'text' : null }, text);
    return el('thead', null, el('tr', null, head('idle device'), shown.length > 0 ? el('th', { scope: 'colgroup', colspan: String(shown.length) }, 'waits for device') : null,
        [...causes.map(c => CATEGORY[2 + c].text.replace('idle: ', '')), 'idle, sum', 'compute', 'transfer', 'window'].map(head)),
    el('tr', null, shown.map(d => el('th', { scope: 'col' }, String(d)))));
}

function matrixRow(t, device, d, shown, causes, exact) {
    const window = Math.max(1, device.end - device.begin), text = time => exact ? time.toLocaleString('en-US') : duration(time);
    const other = device.cause[1] - device.for_device.reduce((a, b) => a + b, 0);
    const sums = [device.idle, device.compute, device.transfer, device.end - device.begin];
    return el('tr', null, el('th', { scope: 'row', class: 'text name' }, 'device ' + d, el('span', { class: 'share quiet' }, ' ' + short(device.name, 30)),
        other > 0 ? el('span', { class: 'share' }, 'for others ' + text(other)) : null),
    [...shown.map(o => device.for_device[o]), ...causes.map(c => device.cause[c])].map(time => {
        const cell = el('td', { title: exactly(time) }, time > 0 ? text(time) : '·', time > 0 && !exact ? el('span', { class: 'share' }, percent(time / window)) : null);
        shade(cell, time / window);
        return cell;
    }), sums.map(time => el('td', { title: exactly(time) }, text(time), !exact ? el('span', { class: 'share' }, percent(time / window)) : null)));
}

function matrixTable(t, exact) {
    const { devices } = t.info, causes = CATEGORY.map((_, c) => c - 2).filter(c => c === 0 || c > 1), shown = waitedFor(devices);
    return el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Idle time of each device by cause' },
        el('table', { id: 'matrix' }, el('caption', null, exact ? 'in nanoseconds: each row adds up to its window' : 'below each time: its share of the window'),
            matrixHead(shown, causes), el('tbody', null, devices.map((device, d) => matrixRow(t, device, d, shown, causes, exact)))),
        leftOut(devices.length - shown.length, 'device has no column, since nothing waited for it.', 'devices have no column, since nothing waited for them.'));
}

function buildMatrix(body) {
    const t = trace(), holder = el('div');
    let exact = false;
    const toggle = button('Nanoseconds', () => {
        exact = !exact;
        toggle.setAttribute('aria-pressed', String(exact));
        holder.replaceChildren(matrixTable(t, exact));
    }, { 'aria-pressed': 'false', id: 'exact' });
    holder.append(matrixTable(t, exact));
    add(body, el('div', { class: 'bar' }, toggle), holder);
    return whenColoursChange(() => holder.replaceChildren(matrixTable(t, exact))); /* its shades depend on the theme */
}
