/* matrix.js - idle time: a row per device, what it waited for, exact to the nanosecond. */

function shade(cell, share) {
    if (share > 0) cell.style.background = 'color-mix(in srgb, ' + colour('back') + ' ' + Math.round(100 - Math.min(1, share) * 55) + '%, #d55e00)';
}

function matrixTable(t, exact) {
    const devices = t.info.devices, causes = [0, 2, 3, 4, 5, 6, 7];
    const text = time => exact ? time.toLocaleString('en-US') : duration(time);
    const heads = ['idle device', ...devices.map((_, d) => 'waits for device ' + d), ...causes.map(c => CATEGORY[2 + c].text.replace('idle: ', '')),
        'idle, sum', 'compute', 'transfer', 'window'];
    const out = el('table', { id: 'matrix' }, el('caption', null, exact ? 'in nanoseconds: each row adds up to its window' : 'the part of the window stands below each time'),
        el('thead', null, el('tr', null, heads.map((head, i) => el('th', { scope: 'col', class: i === 0 ? 'text' : null }, head)))),
        el('tbody', null, devices.map((device, d) => {
            const window = Math.max(1, device.end - device.begin);
            const other = device.cause[1] - device.for_device.reduce((a, b) => a + b, 0);
            const cells = [...device.for_device.map((time, o) => [time, 'waits for device ' + o]), ...causes.map(c => [device.cause[c], CATEGORY[2 + c].text])];
            const sums = [device.idle, device.compute, device.transfer, device.end - device.begin];
            return el('tr', null, el('th', { scope: 'row', class: 'text name' }, 'device ' + d, el('span', { class: 'share quiet' }, ' ' + short(device.name, 30)),
                other > 0 ? el('span', { class: 'share' }, 'for others ' + text(other)) : null),
            ...cells.map(([time]) => {
                const cell = el('td', { title: exactly(time) }, time > 0 ? text(time) : '·', time > 0 && !exact ? el('span', { class: 'share' }, percent(time / window)) : null);
                shade(cell, time / window);
                return cell;
            }), ...sums.map(time => el('td', { title: exactly(time) }, text(time), !exact ? el('span', { class: 'share' }, percent(time / window)) : null)));
        })));
    return el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Idle time of each device by cause' }, out);
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
    body.append(el('div', { class: 'bar' }, toggle), holder);
    return whenColoursChange(() => holder.replaceChildren(matrixTable(t, exact))); /* its shades are of the theme */
}
