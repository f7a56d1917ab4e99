/* make_trace.c - writes trace files of a given shape and size, for the tests of `heddle report`;
 * src/record/format.h defines the format.
 *
 * usage: make_trace SHAPE FILE [COUNT]
 *
 * `shapes` at the end lists the shapes. COUNT: rounds, or launches of `many`. Threads: one. Locks:
 * none. The same arguments give the same file.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "record/format.h"

enum { MAIN = 4100, HELPER = 4101, START = 1000000, MIB = 1 << 20 };

static FILE *out;
static uint64_t positions[32 * HDI_RECORD_LANES];
static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void put(hdi_record r, const char *text)
{
    size_t left = text ? strlen(text) : 0;
    r.texts = (uint8_t)((left + HDI_RECORD_TEXT_BYTES - 1) / HDI_RECORD_TEXT_BYTES);
    fwrite(&r, sizeof(r), 1, out);
    for (; left > 0; text += HDI_RECORD_TEXT_BYTES) {
        hdi_record t = {.text = {.type = HDI_RECORD_TEXT}};
        t.text.bytes = (uint8_t)(left < HDI_RECORD_TEXT_BYTES ? left : HDI_RECORD_TEXT_BYTES);
        memcpy(t.text.text, text, t.text.bytes);
        fwrite(&t, sizeof(t), 1, out);
        left -= t.text.bytes;
    }
}

static hdi_record record(uint8_t type, uint8_t kind, uint8_t device, uint32_t thread, int64_t time)
{
    hdi_record r;
    memset(&r, 0, sizeof(r));
    r.type = type;
    r.kind = kind;
    r.device = device;
    r.thread = thread;
    r.time = time;
    return r;
}

static void put_name(uint8_t kind, uint64_t number, const char *text)
{
    hdi_record r = record(HDI_RECORD_NAME, kind, 0, MAIN, START);
    r.name.number = number;
    put(r, text);
}

static void begin(int devices, uint8_t detail)
{
    hdi_record r = record(HDI_RECORD_TRACE, detail, (uint8_t)devices, MAIN, START);
    r.trace.magic = HDI_RECORD_MAGIC;
    r.trace.version = HDI_RECORD_VERSION;
    r.trace.process = 4100;
    r.trace.since_1970 = INT64_C(1795000000000000000);
    r.trace.placement = 1;
    r.trace.run = 1;
    put(r, NULL);
}

static void put_device(int d, const char *name)
{
    hdi_record r = record(HDI_RECORD_DEVICE, 0, (uint8_t)d, 0, START);
    r.a_device.memory = UINT64_C(80) << 30;
    snprintf(r.a_device.bus, sizeof(r.a_device.bus), "0000:%02x:00.0", d + 16);
    put(r, name);
    for (uint32_t k = 0; k < 4; k++) {
        static const uint8_t kinds[] = {HDI_RECORD_LANE_PROGRAM, HDI_RECORD_LANE_IN, HDI_RECORD_LANE_OUT,
                                        HDI_RECORD_LANE_PEER};
        r = record(HDI_RECORD_LANE, kinds[k], (uint8_t)d, 0, START);
        r.a_lane.lane = (uint32_t)d * HDI_RECORD_LANES + k;
        r.a_lane.slots = 1024;
        put(r, NULL);
    }
    r = record(HDI_RECORD_CLOCK, 0, (uint8_t)d, 0, START);
    r.clock.own = 5000 + d;
    r.clock.within = 400;
    put(r, NULL);
}

/* Returns the device's own time. */
static int64_t own(int d, int64_t time)
{
    return time - START + 5000 + d;
}

typedef struct work {
    int device, lane, kind, other, other_lane; /* other -1: waits for nothing */
    int64_t submitted, began, ended;
    uint64_t bytes, buffer;
    uint32_t kernel, label, ring, thread;
    uint8_t src, dst;
} work;

static void put_wait(const work *w, uint32_t lane, uint64_t position)
{
    uint32_t other = (uint32_t)(w->other * HDI_RECORD_LANES + w->other_lane);
    hdi_record r = record(HDI_RECORD_WAIT, 1, (uint8_t)w->device, w->thread, w->submitted);
    r.wait.lane = lane;
    r.wait.other_lane = other;
    r.wait.position = position;
    r.wait.other_position = positions[other];
    r.wait.buffer = w->buffer;
    r.wait.label = w->label;
    r.wait.high_unit = 4096;
    r.wait.unit = 256;
    put(r, NULL);
}

static void put_submit(const work *w, uint32_t lane, uint64_t before, uint64_t position)
{
    hdi_record r = record(HDI_RECORD_SUBMIT, (uint8_t)w->kind, (uint8_t)w->device, w->thread, w->submitted);
    r.submit.lane = lane;
    r.submit.kernel = w->kernel;
    r.submit.position = position;
    r.submit.before = before;
    r.submit.bytes = w->bytes;
    r.submit.blocks = 1024;
    r.submit.threads = 256;
    r.submit.ring = w->ring;
    r.submit.src = w->src;
    r.submit.dst = w->dst;
    r.submit.waits = w->other >= 0;
    put(r, NULL);
}

/* Writes an operation: submitted, given to the driver, run, done. */
static void put_work(const work *w)
{
    uint32_t lane = (uint32_t)(w->device * HDI_RECORD_LANES + w->lane);
    uint64_t before = positions[lane], position = before + 2;
    if (w->other >= 0) {
        put_wait(w, lane, position);
    }
    put_submit(w, lane, before, position);
    hdi_record r =
        record(HDI_RECORD_ISSUE, 0, (uint8_t)w->device, 0, w->submitted + 900 + (int64_t)(next_random() % 700));
    r.issue.lane = lane;
    r.issue.count = 1;
    r.issue.before = before;
    r.issue.position = position;
    r.issue.returned = r.time + 1500;
    put(r, NULL);
    r = record(HDI_RECORD_SPAN, HDI_RECORD_SPAN_ONE, (uint8_t)w->device, 0, w->ended + 2000);
    r.span.lane = lane;
    r.span.before = before;
    r.span.position = position;
    r.span.began = own(w->device, w->began);
    r.span.ended = own(w->device, w->ended);
    r.span.op = (uint64_t)w->kind;
    put(r, NULL);
    r = record(HDI_RECORD_DONE, 0, (uint8_t)w->device, 0, w->ended + 3000);
    r.done.lane = lane;
    r.done.before = before;
    r.done.position = position;
    put(r, NULL);
    positions[lane] = position;
}

static void put_transfer(const work *w, uint8_t way, uint32_t label)
{
    hdi_record r = record(HDI_RECORD_TRANSFER, way, (uint8_t)w->device, w->thread, w->submitted - 300);
    r.transfer.lane = (uint32_t)(w->device * HDI_RECORD_LANES + w->lane);
    r.transfer.src = w->src;
    r.transfer.dst = w->dst;
    r.transfer.position = positions[r.transfer.lane];
    r.transfer.bytes = w->bytes;
    r.transfer.returned = w->submitted + 600;
    r.transfer.dst_label = label;
    put(r, NULL);
}

static void put_memory(int d, bool is_alloc, uint64_t buffer, uint64_t bytes, uint32_t label, uint32_t rungs,
                       int64_t time)
{
    hdi_record r = record(is_alloc ? HDI_RECORD_ALLOC : HDI_RECORD_FREE, 0, (uint8_t)d, MAIN, time);
    r.alloc.buffer = buffer;
    r.alloc.bytes = bytes;
    r.alloc.label = label;
    r.alloc.rungs = rungs;
    r.alloc.took = is_alloc ? 800 : 0;
    r.alloc.address = 0x7f0000000000 + buffer * 4096;
    put(r, NULL);
}

static void put_figure(int d, uint64_t in_use, uint64_t held, int64_t time)
{
    hdi_record r = record(HDI_RECORD_MEMORY, 0, (uint8_t)d, 0, time);
    r.memory.in_use = in_use;
    r.memory.held = held;
    r.memory.limit = UINT64_C(6) << 30;
    r.memory.pinned = 64 * MIB;
    put(r, NULL);
}

static void put_pause(uint8_t kind, int d, uint32_t thread, uint32_t lane, uint32_t detail, int64_t from, int64_t to)
{
    hdi_record r = record(HDI_RECORD_PAUSE, kind, (uint8_t)d, thread, from);
    r.pause.ended = to;
    r.pause.lane = lane;
    r.pause.detail = detail;
    r.pause.bytes = 64 * MIB;
    put(r, NULL);
}

static void put_range(bool push, uint32_t thread, uint64_t name, int64_t time)
{
    hdi_record r = record(push ? HDI_RECORD_PUSH : HDI_RECORD_POP, 0, 0, thread, time);
    r.range.name = push ? name : 0;
    put(r, NULL);
}

static void put_interval(uint64_t name, uint32_t began_by, uint32_t ended_by, int64_t from, int64_t to)
{
    hdi_record r = record(HDI_RECORD_INTERVAL, 1, 0, ended_by, from);
    r.interval.ended = to;
    r.interval.name = name;
    r.interval.began_by = began_by;
    put(r, NULL);
}

static void put_loss(int d, uint64_t position, int64_t time, int64_t up)
{
    hdi_record r = record(HDI_RECORD_LOSS, 0, (uint8_t)d, 0, time);
    r.loss.code = 700;
    r.loss.lane = (uint32_t)(d * HDI_RECORD_LANES);
    r.loss.kernel = 2;
    r.loss.position = position;
    put(r, "device is lost: CUDA_ERROR_ILLEGAL_ADDRESS; the first operation to blame is a launch of scatter");
    if (up > 0) {
        r = record(HDI_RECORD_RESTART, 0, (uint8_t)d, MAIN, time + (up - time) / 4);
        r.loss.ended = up;
        put(r, NULL);
    }
}

static void end(int64_t time)
{
    put(record(HDI_RECORD_END, 0, 0, MAIN, time), NULL);
}

/* ---- shapes ---- */

static void put_usual_names(void)
{
    put_name(HDI_RECORD_NAME_KERNEL, 1, "stencil_f32");
    put_name(HDI_RECORD_NAME_KERNEL, 2, "scatter");
    put_name(HDI_RECORD_NAME_LABEL, 1, "grid");
    put_name(HDI_RECORD_NAME_LABEL, 2, "halo");
    put_name(HDI_RECORD_NAME_LABEL, 3, "scratch");
    put_name(HDI_RECORD_NAME_RANGE, 1, "step");
    put_name(HDI_RECORD_NAME_RANGE, 2, "exchange");
    put_name(HDI_RECORD_NAME_RANGE, 3, "data: batch");
    put_name(HDI_RECORD_NAME_RANGE, 4, "request");
    put_name(HDI_RECORD_NAME_THREAD, MAIN, "main");
    put_name(HDI_RECORD_NAME_THREAD, HELPER, "loader");
    put_name(HDI_RECORD_NAME_OPTION, 1, "placement=thread");
}

static void put_round_memory(int i, int64_t t)
{
    uint64_t held = UINT64_C(3) << 30;
    for (int d = 0; d < 2; d++) {
        put_memory(d, true, 1000u + (uint64_t)(i * 2 + d), (uint64_t)(64 + i % 7 * 96) * MIB, 3,
                   i % 9 == 0 ? HDI_RECORD_RUNG_GREW : 0, t);
        if (i >= 3) {
            put_memory(d, false, 1000u + (uint64_t)((i - 3) * 2 + d), (uint64_t)(64 + (i - 3) % 7 * 96) * MIB, 3, 0,
                       t + 5000);
        }
        put_figure(d, held - (UINT64_C(1) << 30), held + (uint64_t)(i % 9) * 128 * MIB, t + 6000);
    }
    if (i % 9 == 0) {
        put_pause(HDI_RECORD_PAUSE_MAP, i % 2, MAIN, 0, i % 18 == 0 ? HDI_RECORD_MAP_MORE : HDI_RECORD_MAP_MOVED,
                  t - 90000, t - 2000);
    }
    if (i % 13 == 5) {
        put_pause(HDI_RECORD_PAUSE_CALLBACK, 0, MAIN, 0, 0, t - 60000, t - 2000);
    }
}

/* The second device's part: it gets the halo and computes, then the first one waits for it. Returns
 * when all of that ends. */
static int64_t put_other(int i, int64_t t, int64_t began, uint64_t bytes, int64_t run)
{
    work peer = {.lane = 3,
                 .kind = HDI_RECORD_OP_COPY,
                 .kernel = HDI_RECORD_WAY_PEER,
                 .other = 0,
                 .buffer = 2,
                 .label = 2,
                 .submitted = t + 11000,
                 .began = began,
                 .ended = began + 1000 + (int64_t)(bytes / 80),
                 .bytes = bytes / 2,
                 .thread = MAIN,
                 .ring = 2,
                 .dst = 1};
    put_work(&peer);
    put_transfer(&peer, HDI_RECORD_WAY_PEER, 2);
    work b = {.device = 1,
              .kind = HDI_RECORD_OP_LAUNCH,
              .kernel = 2,
              .other = 0,
              .other_lane = 3,
              .buffer = 2,
              .label = 2,
              .submitted = t + 13000,
              .began = peer.ended + 5000,
              .ended = peer.ended + 5000 + run,
              .thread = MAIN,
              .ring = (uint32_t)(3 + i * 31 % 900)};
    put_work(&b);
    work back = {.kind = HDI_RECORD_OP_FILL,
                 .other = 1,
                 .buffer = 2,
                 .label = 2,
                 .bytes = 4096,
                 .submitted = t + 15000,
                 .began = b.ended + 3000,
                 .ended = b.ended + 9000,
                 .thread = MAIN,
                 .ring = 5};
    put_work(&back);
    return back.ended + (i % 5 == 4 ? 250000 : 30000);
}

/* One step: each device computes, and each waits for the other one's halo. */
static int64_t put_round(int i, int64_t t, int64_t slow, bool lost)
{
    put_range(true, MAIN, 1, t);
    put_round_memory(i, t);
    uint64_t bytes = (uint64_t)(1 + next_random() % 64) * (i % 4 == 0 ? 4096 : MIB);
    int64_t run = 300000 + (int64_t)(next_random() % 120000);
    work in = {.lane = 1,
               .kind = HDI_RECORD_OP_COPY,
               .kernel = HDI_RECORD_WAY_TO_DEVICE,
               .other = -1,
               .submitted = t + 8000,
               .began = t + 12000,
               .ended = t + 14000 + (int64_t)(bytes / 40),
               .bytes = bytes,
               .thread = HELPER,
               .ring = 2,
               .src = HDI_RECORD_NO_DEVICE};
    put_work(&in);
    put_transfer(&in, HDI_RECORD_WAY_TO_DEVICE, 1);
    work a = {.kind = HDI_RECORD_OP_LAUNCH,
              .kernel = 1,
              .other = 0,
              .other_lane = 1,
              .buffer = 1,
              .label = 1,
              .submitted = t + 9000,
              .began = in.ended + 3000,
              .ended = in.ended + 3000 + run,
              .thread = MAIN,
              .ring = (uint32_t)(4 + i * 17 % 1021)};
    put_work(&a);
    int64_t after = lost ? a.ended + 20000 : put_other(i, t, a.ended + 4000, bytes, run * slow / 2);
    put_range(true, MAIN, 2, a.ended);
    put_range(false, MAIN, 2, after - 9000);
    put_range(false, MAIN, 1, after - 4000);
    if (i % 11 == 7) {
        put_pause(HDI_RECORD_PAUSE_ROOM, 0, HELPER, 1, 0, t + 20000, after - 20000);
    }
    return after;
}

static void usual(int rounds, int64_t slow, bool back)
{
    int64_t t = START + 100000, up = 0;
    begin(2, HDI_RECORD_DETAIL_FULL);
    put_device(0, "NVIDIA H200");
    put_device(1, "NVIDIA H200");
    put_usual_names();
    for (int d = 0; d < 2; d++) {
        put_memory(d, true, 1u + (uint64_t)d, UINT64_C(1) << 30, 1, HDI_RECORD_RUNG_GREW, t - 50000);
        put_memory(d, true, 11u + (uint64_t)d, 256 * MIB, 2, 0, t - 40000);
    }
    for (int i = 0; i < rounds; i++) {
        bool gone = i >= rounds / 2 && (t < up || (!back && i > rounds / 2));
        if (i == rounds / 2) {
            up = t + 6000000;
            put_loss(1, positions[HDI_RECORD_LANES], t, back ? up : 0);
            gone = true;
        }
        t = put_round(i, t, slow, gone);
    }
    end(t + 100000);
}

static void many(int count)
{
    int64_t t[2] = {START + 100000, START + 100000};
    begin(2, HDI_RECORD_DETAIL_FULL);
    put_device(0, "NVIDIA H200");
    put_device(1, "NVIDIA H200");
    put_usual_names();
    for (int i = 0; i < count; i++) {
        int d = i % 2;
        int64_t gap = 1200 + (int64_t)(next_random() % 900) + (next_random() % 1000 == 0 ? 200000 : 0);
        work w = {.device = d,
                  .kind = HDI_RECORD_OP_LAUNCH,
                  .kernel = 1 + (uint32_t)(next_random() % 2),
                  .other = i % 50 == 49 ? 1 - d : -1,
                  .buffer = 1,
                  .label = 1,
                  .submitted = t[d] - 4000,
                  .began = t[d] + gap,
                  .thread = MAIN,
                  .ring = (uint32_t)(next_random() % 600)};
        w.ended = w.began + 2000 + (int64_t)(next_random() % 6000);
        put_work(&w);
        put_interval(3 + (uint64_t)i % 2, MAIN, HELPER, w.submitted, w.ended);
        t[d] = w.ended;
    }
    end((t[0] > t[1] ? t[0] : t[1]) + 100000);
}

static void wide(int devices, bool work_too, const char *name)
{
    begin(devices, HDI_RECORD_DETAIL_FULL);
    for (int d = 0; d < devices; d++) {
        put_device(d, name);
    }
    put_usual_names();
    for (int i = 0; work_too && i < devices * 20; i++) {
        int d = i % devices;
        int64_t t = START + 100000 + i / devices * 400000 + d * 9000;
        work w = {.device = d,
                  .kind = HDI_RECORD_OP_LAUNCH,
                  .kernel = 1,
                  .other = d > 0 ? d - 1 : -1,
                  .buffer = 1,
                  .label = 2,
                  .submitted = t,
                  .began = t + 6000,
                  .ended = t + 200000,
                  .thread = MAIN,
                  .ring = 4};
        put_work(&w);
    }
    end(START + 10000000);
}

static void one(void)
{
    begin(1, HDI_RECORD_DETAIL_FULL);
    put_device(0, "NVIDIA H200");
    work w = {.kind = HDI_RECORD_OP_LAUNCH,
              .other = -1,
              .submitted = START + 10,
              .began = START + 50,
              .ended = START + 60,
              .thread = MAIN,
              .ring = 1};
    put_work(&w);
    end(START + 100);
}

static void odd(void)
{
    static char longest[1200];
    memset(longest, 'W', sizeof(longest) - 1);
    begin(1, HDI_RECORD_DETAIL_FULL);
    put_device(0, "</script><b>\"'& \xf0\x9f\x9a\x80 card");
    put_name(HDI_RECORD_NAME_KERNEL, 1, "</script><script>document.title='broken'</script>");
    put_name(HDI_RECORD_NAME_KERNEL, 2, longest);
    put_name(HDI_RECORD_NAME_LABEL, 1, "<!-- \xe2\x80\xa8 line \xe2\x80\xa9 separators \\ \" ' \xf0\x9f\x8e\x89");
    put_name(HDI_RECORD_NAME_LABEL, 2,
             "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d 7 \xe2\x80\xae"
             "abc"); /* Hebrew, and a character that reverses the text behind it */
    put_name(HDI_RECORD_NAME_THREAD, MAIN, "<img src=x onerror=alert(1)>");
    put_name(HDI_RECORD_NAME_RANGE, 1, "@SCRIPT@ @NUMBER@ \x01\x7f");
    put_range(true, MAIN, 1, START + 1000);
    put_memory(0, true, 1, 4096, 1, 0, START + 2000);
    put_memory(0, true, 2, 8192, 2, 0, START + 3000);
    for (int i = 0; i < 8; i++) {
        int64_t t = START + 10000 + i * 50000;
        work w = {.kind = HDI_RECORD_OP_LAUNCH,
                  .kernel = 1 + (uint32_t)i % 2,
                  .other = -1,
                  .submitted = t,
                  .began = t + 5000,
                  .ended = t + 40000,
                  .thread = MAIN,
                  .ring = 4};
        put_work(&w);
    }
    put_range(false, MAIN, 1, START + 500000);
    end(START + 600000);
}

enum {
    CROWD_LANES = 100,
    CROWD_CHAIN = 6000,
    CROWD_WAITS = 50,
    CROWD_THREADS = 70,
    CROWD_INTERVALS = 40,
    CROWD_LOSSES = 25,
    CROWD_LABELS = 12
};

/* Each operation waits for the previous one, on the other device. */
static int64_t put_long_chain(int64_t t)
{
    for (int i = 0; i < CROWD_CHAIN; i++) {
        work w = {.device = i % 2,
                  .kind = HDI_RECORD_OP_LAUNCH,
                  .kernel = 1,
                  .other = i > 0 ? 1 - i % 2 : -1,
                  .buffer = 1,
                  .label = 1,
                  .submitted = START + 50000 + i,
                  .began = t,
                  .ended = t + 1000,
                  .thread = MAIN,
                  .ring = 3};
        put_work(&w);
        t += 1500;
    }
    return t;
}

/* The last operation waits for this many. */
static void put_many_waits(int64_t t)
{
    uint32_t lane = HDI_RECORD_LANES + 4;
    work w = {
        .device = 1, .kind = HDI_RECORD_OP_LAUNCH, .other = 0, .buffer = 1, .label = 1, .submitted = t, .thread = MAIN};
    for (int i = 0; i < CROWD_WAITS; i++) {
        w.other_lane = 4 + i;
        put_wait(&w, lane, 2);
    }
    hdi_record r = record(HDI_RECORD_SUBMIT, HDI_RECORD_OP_LAUNCH, 1, MAIN, t);
    r.submit.lane = lane;
    r.submit.position = 2;
    r.submit.waits = CROWD_WAITS;
    put(r, NULL);
}

static void crowd(void)
{
    char name[32];
    begin(2, HDI_RECORD_DETAIL_FULL);
    put_device(0, "NVIDIA H200");
    put_device(1, "NVIDIA H200");
    put_usual_names();
    for (int i = 0; i < CROWD_LABELS; i++) {
        snprintf(name, sizeof(name), "label %d", i);
        put_name(HDI_RECORD_NAME_LABEL, 10 + (uint64_t)i, name);
        put_memory(0, true, 100 + (uint64_t)i, (uint64_t)(i + 1) * MIB, 10 + (uint32_t)i, 0, START + 1000 + i);
    }
    for (int i = 0; i < CROWD_THREADS; i++) {
        put_range(true, 5000 + (uint32_t)i, 1, START + 60000);
        put_range(false, 5000 + (uint32_t)i, 1, START + 900000);
    }
    for (int i = 0; i < CROWD_INTERVALS; i++) {
        put_interval(3, MAIN, HELPER, START + 60000 + i, START + 900000);
    }
    int64_t t = START + 100000;
    for (int i = 4; i < CROWD_LANES; i++) {
        hdi_record r = record(HDI_RECORD_LANE, HDI_RECORD_LANE_PROGRAM, 0, 0, START);
        r.a_lane.lane = (uint32_t)i;
        r.a_lane.slots = 1024;
        put(r, NULL);
        work w = {.lane = i,
                  .kind = HDI_RECORD_OP_LAUNCH,
                  .kernel = 1,
                  .other = -1,
                  .submitted = t,
                  .began = t + 2000,
                  .ended = t + 9000,
                  .thread = MAIN,
                  .ring = (uint32_t)i};
        put_work(&w);
        t += 10000;
    }
    put_many_waits(t);
    t = put_long_chain(t);
    for (int i = 0; i < CROWD_LOSSES; i++, t += 20000) {
        put_loss(1, 0, t, t + 10000);
    }
    end(t + 100000);
}

static void put_activity(uint8_t kind, uint64_t name, const char *text, uint32_t stream, int64_t from, int64_t to)
{
    hdi_record r = record(HDI_RECORD_ACTIVITY, kind, 0, 0, from);
    r.activity.ended = to;
    r.activity.name = name;
    r.activity.stream = stream;
    r.activity.bytes = kind == HDI_RECORD_ACTIVITY_COPY ? MIB : 0;
    put(r, text);
}

/* Launches of one lane. */
static void put_launches(int count)
{
    for (int i = 0; i < count; i++) {
        int64_t t = START + 100000 + i * 100000;
        work w = {.kind = HDI_RECORD_OP_LAUNCH,
                  .kernel = 1,
                  .other = -1,
                  .submitted = t,
                  .began = t + 5000,
                  .ended = t + 45000,
                  .thread = MAIN,
                  .ring = 2};
        put_work(&w);
    }
}

/* Launches, each followed by a copy of another library. */
static void cupti(void)
{
    begin(1, HDI_RECORD_DETAIL_CUPTI);
    put_device(0, "NVIDIA H200");
    put_usual_names();
    put_launches(8);
    for (int i = 0; i < 8; i++) {
        int64_t t = START + 100000 + i * 100000;
        put_activity(HDI_RECORD_ACTIVITY_KERNEL, 1, i == 0 ? "stencil_f32" : NULL, 7, t + 6000, t + 44000);
        put_activity(HDI_RECORD_ACTIVITY_COPY, 2, i == 0 ? "memcpy" : NULL, 21, t + 60000, t + 80000);
    }
    end(START + 1000000);
}

/* Two threads with a range inside a range. Up to three intervals overlap, and two begin at the same
 * time. */
static void overlap(void)
{
    begin(1, HDI_RECORD_DETAIL_FULL);
    put_device(0, "NVIDIA H200");
    put_usual_names();
    for (uint32_t thread = MAIN; thread <= HELPER; thread++) {
        int64_t t = START + 100000 + (thread - MAIN) * 300000;
        put_range(true, thread, 1, t);
        put_range(true, thread, 2, t + 50000);
        put_range(false, thread, 2, t + 200000);
        put_range(false, thread, 1, t + 300000);
    }
    int64_t t = START;
    put_interval(3, MAIN, HELPER, t + 100000, t + 300000);
    put_interval(3, MAIN, HELPER, t + 200000, t + 400000);
    put_interval(4, HELPER, HELPER, t + 250000, t + 280000);
    put_interval(3, MAIN, HELPER, t + 300000, t + 500000);
    put_interval(4, MAIN, MAIN, t + 600000, t + 600000); /* of length 0 */
    put_interval(4, HELPER, HELPER, t + 600000, t + 650000);
    put_launches(8);
    end(START + 1000000);
}

/* A launch waits for work behind its bytes. A buffer gets its label later. The file lists a restart
 * before its loss. */
static void later(void)
{
    int64_t t = START + 100000;
    begin(2, HDI_RECORD_DETAIL_FULL);
    put_device(0, "NVIDIA H200");
    put_device(1, "NVIDIA H200");
    put_usual_names();
    put_memory(0, true, 1, 40 * MIB, 1, 0, t - 5000);
    put_figure(0, 62 * MIB, 64 * MIB, t - 4000);
    work w = {.kind = HDI_RECORD_OP_LAUNCH, .kernel = 1, .other = -1, .thread = MAIN, .ring = 2};
    for (int i = 0; i < 2; i++) {
        w.submitted = t + i * 2000, w.began = t + 5000 + i * 400000, w.ended = w.began + 400000;
        put_work(&w);
    }
    w = (work){.device = 1,
               .kind = HDI_RECORD_OP_LAUNCH,
               .kernel = 2,
               .other = 0,
               .buffer = 1,
               .label = 1,
               .submitted = t + 1000,
               .began = t + 809000,
               .ended = t + 900000,
               .thread = MAIN,
               .ring = 2};
    positions[0] -= 2; /* the bytes are those of the first launch */
    put_work(&w);
    positions[0] += 2;
    hdi_record r = record(HDI_RECORD_BEHIND, 0, 1, 0, t + 1500);
    r.behind.lane = HDI_RECORD_LANES;
    r.behind.before = 1;
    r.behind.other_position = positions[0];
    put(r, NULL);
    r = record(HDI_RECORD_LABEL, 0, 0, MAIN, t + 300000);
    r.alloc.buffer = 1, r.alloc.bytes = 40 * MIB, r.alloc.label = 2;
    put(r, NULL);
    r = record(HDI_RECORD_RESTART, 0, 1, MAIN, t + 950000);
    r.loss.ended = t + 960000;
    put(r, NULL);
    put_loss(1, 0, t + 940000, 0);
    w.device = 0, w.kernel = 1, w.other = -1;
    w.submitted = t + 970000, w.began = t + 980000, w.ended = t + 990000;
    put_work(&w);
    end(t + 1000000);
}

typedef struct shape {
    const char *name, *what;
} shape;

static const shape shapes[] = {
    {"usual", "two devices that wait for each other, transfers, memory, pauses, ranges, a loss"},
    {"slow", "the same with a slower second device, to be laid beside it"},
    {"lost", "the device does not come back"},
    {"cut", "usual, ends within a record"},
    {"many", "launches, each measured by itself and within an interval, on two devices"},
    {"empty", "no device"},
    {"idle", "devices without work"},
    {"one", "a single operation"},
    {"wide", "32 devices"},
    {"crowd", "more of all than a page shows: threads, intervals, lanes, losses, waits, a chain"},
    {"cupti", "what CUPTI reports, of the program and of another library"},
    {"overlap", "ranges within ranges in two threads, intervals that overlap"},
    {"later", "what stands later than it is: an event, a label, a loss"},
    {"odd", "names with quotes, markup, emoji and great length"},
};

static void make(int which, int count)
{
    switch (which) {
    case 0:
    case 3:
        usual(count, 2, true);
        break;
    case 1:
        usual(count, 4, true);
        break;
    case 2:
        usual(count, 2, false);
        break;
    case 4:
        many(count);
        break;
    case 5:
        begin(0, HDI_RECORD_DETAIL_EDGES);
        end(START + 10);
        break;
    case 6:
        wide(2, false, "NVIDIA H200");
        break;
    case 7:
        one();
        break;
    case 8:
        wide(32, true, "NVIDIA H100 80GB HBM3");
        break;
    case 9:
        crowd();
        break;
    case 10:
        cupti();
        break;
    case 11:
        overlap();
        break;
    case 12:
        later();
        break;
    default:
        odd();
    }
    if (which == 3) {
        fwrite("half a record", 13, 1, out);
    }
}

int main(int argc, char **argv)
{
    int n = (int)(sizeof(shapes) / sizeof(shapes[0])), which = 0;
    while (argc > 2 && which < n && strcmp(argv[1], shapes[which].name) != 0) {
        which++;
    }
    out = argc > 2 && which < n ? fopen(argv[2], "wb") : NULL;
    if (!out) {
        fprintf(stderr, "usage: make_trace SHAPE FILE [COUNT]\n");
        for (int i = 0; i < n; i++) {
            fprintf(stderr, "  %-6s %s\n", shapes[i].name, shapes[i].what);
        }
        return 2;
    }
    make(which, argc > 3 ? atoi(argv[3]) : 40);
    return fclose(out) == 0 ? 0 : 1;
}
