'use strict';
/* data.js - the data of the page: JSON elements, and columns of numbers. The page decodes a column
 * at its first use. A column is base64 of numbers with seven bits per byte; cli/report/parts.h
 * describes the format. */

const UNSEEN_SHORT = -1;
/* Columns whose whole numbers may exceed 31 bits. In these columns, NaN stands for a value that was
 * not seen; in all others, -1 does. */
const WIDE = new Set(['position', 'thread', 'blocks', 'threads', 'bytes', 'submitted', 'issued', 'began', 'ended', 'done', 'ready',
    'low', 'high', 'begin', 'end', 'called', 'returned', 'time', 'since', 'in_use', 'held', 'limit', 'lane', 'stream', 'detail', 'began_by', 'ended_by']);

const BASE64 = (() => {
    const table = new Uint8Array(128);
    const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
    for (let i = 0; i < 64; i++) table[digits.charCodeAt(i)] = i;
    return table;
})();

function bytesOf(text) {
    const out = new Uint8Array(Math.floor(text.length * 3 / 4));
    let at = 0, i = 0;
    for (; i + 4 <= text.length; i += 4) {
        const bits = BASE64[text.charCodeAt(i)] << 18 | BASE64[text.charCodeAt(i + 1)] << 12 |
            BASE64[text.charCodeAt(i + 2)] << 6 | BASE64[text.charCodeAt(i + 3)];
        out[at++] = bits >> 16;
        out[at++] = bits >> 8;
        out[at++] = bits;
    }
    if (text.length - i >= 2) {
        const bits = BASE64[text.charCodeAt(i)] << 18 | BASE64[text.charCodeAt(i + 1)] << 12 |
            (i + 2 < text.length ? BASE64[text.charCodeAt(i + 2)] << 6 : 0);
        out[at++] = bits >> 16;
        if (text.length - i === 3) out[at++] = bits >> 8;
    }
    return out;
}

/* Decodes bytes into `out`. `none` stands for a value that was not seen. */
function decodeNumbers(bytes, out, none) {
    const n = out.length;
    let at = 0, last = 0, value = none;
    for (let i = 0; i < n && at < bytes.length;) {
        /* the lowest bit is kept apart, since a number may be 54 bits long */
        let byte = bytes[at++], half = byte >> 1 & 63;
        const odd = byte & 1;
        for (let scale = 64; byte > 127 && at < bytes.length; scale *= 128) {
            byte = bytes[at++];
            half += (byte & 127) * scale;
        }
        if (half === 0 && odd) { /* repeats the value before */
            let repeats = 0, scale = 1;
            do {
                byte = bytes[at++];
                repeats += (byte & 127) * scale;
                scale *= 128;
            } while (byte > 127);
            const end = Math.min(n, i + repeats);
            out.fill(value, i, end);
            i = end;
            continue;
        }
        if (half === 0) {
            value = none;
        } else {
            last += odd ? -half : half - 1;
            value = last;
        }
        out[i++] = value;
    }
    return out;
}

/* The objects in a list of a result. Any tool may have written the result, so the list may also
 * contain other values, which this leaves out. */
function objectsOf(list) {
    return Array.isArray(list) ? list.filter(item => item !== null && typeof item === 'object' && !Array.isArray(item)) : [];
}

function listOf(value) {
    return Array.isArray(value) ? value : [];
}

/* The pairs of `heddle p2p` with two different devices of possible numbers. An impossible number
 * could make the map endless. */
function pairsOf(data) {
    const isDevice = d => Number.isInteger(d) && d >= 0 && d < DEVICES;
    return objectsOf(data.pairs).filter(pair => isDevice(pair.device) && isDevice(pair.owner) && pair.device !== pair.owner)
        .map(pair => ({ ...pair, verdict: plain(pair.verdict), reason: textOf(pair.reason), remedy: textOf(pair.remedy) }));
}

/* The text of a JSON value, for a cell. */
function plain(value) {
    return value === null || value === undefined ? '–' : typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/* Like plain, but the text of a missing value is empty. */
function textOf(value) {
    return value === null || value === undefined ? '' : plain(value);
}

function elementText(id) {
    const element = document.getElementById(id);
    return element ? element.textContent : '';
}

function readJson(id) {
    return JSON.parse(elementText(id));
}

/* A trace. `info` is its JSON; col('ops', 'began') returns a column. */
class Trace {
    constructor(file) {
        this.name = file.name;
        this.id = file.id;
        this.info = readJson(file.id);
        this.cache = new Map();
        let at = 0;
        this.firstPiece = this.info.devices.map(device => {
            const first = at;
            at += device.pieces;
            return first;
        });
        this.begin = this.info.begin;
        this.end = Math.max(this.info.end, this.info.begin + 1);
        this.lanesByNumber = new Map(this.info.lanes.map(lane => [lane.lane, lane]));
    }

    count(table) {
        return this.info.tables[table] || 0;
    }

    col(table, field) {
        const key = table + '_' + field;
        let column = this.cache.get(key);
        if (!column) {
            const wide = WIDE.has(field);
            const n = this.count(table);
            const id = this.id + '-' + key;
            column = wide ? new Float64Array(n).fill(NaN) : new Int32Array(n).fill(UNSEEN_SHORT);
            decodeNumbers(bytesOf(elementText(id)), column, wide ? NaN : UNSEEN_SHORT);
            const element = document.getElementById(id);
            if (element) element.remove(); /* the decoded data replaces the element */
            this.cache.set(key, column);
        }
        return column;
    }

    nameOf(index) {
        return index >= 0 && index < this.info.names.length ? isolated(this.info.names[index]) : '';
    }

    deviceName(d) {
        const device = this.info.devices[d];
        return device ? 'device ' + d : d === 255 ? 'host' : 'elsewhere';
    }

    threadName(thread) {
        const found = this.info.threads.find(t => t.thread === thread);
        const name = found ? short(this.nameOf(found.name), NAME) : '';
        return name ? name + ' (' + thread + ')' : 'thread ' + thread;
    }

    deviceOfLane(number) {
        return Math.floor(number / this.info.lane_numbers);
    }

    laneName(number) {
        const lane = this.lanesByNumber.get(number);
        const kind = lane ? LANE_KINDS[lane.kind] || '' : '';
        return 'lane ' + number % this.info.lane_numbers + (kind ? ' ' + kind : '');
    }

    /* The name of an operation: "axpy", "copy device 0 to host". */
    opName(op) {
        if (op < 0 || op >= this.count('ops')) return 'an operation that is missing in the trace';
        const kind = this.col('ops', 'kind')[op];
        const kernel = this.nameOf(this.col('ops', 'kernel')[op]);
        if (kind === 2) {
            return 'copy ' + this.deviceName(this.col('ops', 'src')[op]) + ' to ' + this.deviceName(this.col('ops', 'dst')[op]);
        }
        return kind === 1 && kernel ? kernel : OP_KINDS[kind] || 'operation';
    }

    /* The device, lane and position that identify an operation. */
    opPlace(op) {
        const lane = this.col('ops', 'lane')[op];
        return this.deviceOfLane(lane) + '.' + lane % this.info.lane_numbers + ':' + this.col('ops', 'position')[op];
    }

    /* The times at which an operation began and ended, as far as the trace shows them. NaN: not
     * seen at all. */
    opTimes(op) {
        const began = this.col('ops', 'began')[op], ended = this.col('ops', 'ended')[op];
        const submitted = this.col('ops', 'submitted')[op], done = this.col('ops', 'done')[op];
        const from = Number.isNaN(began) ? submitted : began;
        const to = Number.isNaN(ended) ? (Number.isNaN(done) ? from : done) : ended;
        return [from, Math.max(from, to)];
    }

    /* The chain from an operation back: each next operation held up the operation before. The last one
     * could run when it was submitted. `beyond`: the number of operations left out. */
    chain(op, most = CHAIN) {
        const holder = this.col('ops', 'holder'), ready = this.col('ops', 'ready'), submitted = this.col('ops', 'submitted');
        const out = [], seen = new Uint8Array(holder.length);
        out.beyond = 0;
        for (let at = op; at >= 0 && !seen[at];) {
            seen[at] = 1;
            if (out.length < most) out.push(at);
            else out.beyond++;
            at = Number.isNaN(ready[at]) || ready[at] > submitted[at] ? holder[at] : -1;
        }
        return out;
    }

    /* The pieces of a device: the index of the first one, and the index behind the last one. */
    pieces(d) {
        const first = this.firstPiece[d];
        return [first, first + this.info.devices[d].pieces];
    }

    /* The piece of a device that contains a time. */
    pieceAt(d, time) {
        const [first, end] = this.pieces(d);
        return Math.max(first, upperBound(this.col('pieces', 'begin'), time, first, end) - 1);
    }

    pieceEnd(d, i) {
        const [, end] = this.pieces(d);
        return i + 1 < end ? this.col('pieces', 'begin')[i + 1] : this.info.devices[d].end;
    }

    /* The category of each piece: 0 is compute, 1 is transfer, 2 and more are the causes of idle
     * time. */
    pieceCategories() {
        let categories = this.cache.get('categories');
        if (!categories) {
            const state = this.col('pieces', 'state'), cause = this.col('pieces', 'cause');
            categories = new Uint8Array(state.length);
            for (let i = 0; i < state.length; i++) categories[i] = state[i] < 2 ? state[i] : 2 + cause[i];
            this.cache.set('categories', categories);
        }
        return categories;
    }

    /* For each block of a device's pieces, the time of each category in all earlier pieces. So
     * addUpTo looks at a single block only. */
    pieceSums(d) {
        const key = 'sums' + d;
        let sums = this.cache.get(key);
        if (!sums) {
            const [first, end] = this.pieces(d), begin = this.col('pieces', 'begin'), category = this.pieceCategories();
            const blocks = Math.ceil((end - first) / PIECE_BLOCK) + 1;
            const table = new Float64Array(blocks * CATEGORIES);
            const total = new Float64Array(CATEGORIES);
            for (let i = first; i < end; i++) {
                if ((i - first) % PIECE_BLOCK === 0) table.set(total, (i - first) / PIECE_BLOCK * CATEGORIES);
                total[category[i]] += this.pieceEnd(d, i) - begin[i];
            }
            sums = { first, end, table };
            this.cache.set(key, sums);
        }
        return sums;
    }

    /* Adds the time of each category before t to `out`, times `sign`. */
    addUpTo(d, t, sign, out) {
        const { first, end, table } = this.pieceSums(d), begin = this.col('pieces', 'begin'), category = this.pieceCategories();
        if (end === first || t <= begin[first]) return;
        const last = upperBound(begin, t, first, end) - 1;
        const block = Math.floor((last - first) / PIECE_BLOCK);
        for (let c = 0; c < CATEGORIES; c++) out[c] += sign * table[block * CATEGORIES + c];
        for (let i = first + block * PIECE_BLOCK; i <= last; i++) {
            out[category[i]] += sign * (Math.min(t, this.pieceEnd(d, i)) - begin[i]);
        }
    }

    splitBetween(d, from, to, out = new Float64Array(CATEGORIES)) {
        out.fill(0);
        this.addUpTo(d, to, 1, out);
        this.addUpTo(d, from, -1, out);
        return out;
    }
}

const DEVICES = 32; /* the most devices of a machine */
const CHAIN = 200; /* the most operations of a chain that are drawn and listed */
const PIECE_BLOCK = 32;
const CATEGORIES = 11;
const OP_KINDS = ['', 'launch', 'copy', 'fill', 'matrix product', 'call', 'mark', 'claim'];
const LANE_KINDS = ['', '', 'in', 'out', 'on device', 'peer', 'claims', 'library'];
const WAYS = ['', 'to device', 'to host', 'on device', 'peer', 'in host memory', 'staged', 'write', 'read'];
const PAUSES = ['', 'ring full', 'waits for work', 'waits for memory', 'maps memory', 'loads code', 'waits for a chunk', 'reclaims'];
const RUNGS = ['free block', 'mapped', "threads' stores emptied", 'waited', 'program asked to free', 'failed'];

/* The first index from `from` on whose value is above t. */
function upperBound(values, t, from, to) {
    while (from < to) {
        const middle = (from + to) >> 1;
        if (values[middle] > t) to = middle;
        else from = middle + 1;
    }
    return from;
}
