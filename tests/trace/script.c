/* script.c - trace files made from scripts. See script.h. */
#include "trace/script.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A statement that is being read. */
typedef struct statement {
    const char *line;
    char text[512];
} statement;

static void wrong(const statement *st, const char *what)
{
    fprintf(stderr, "script: %s: %s\n", what, st->line);
    abort();
}

/* Returns the value of NAME=, or NULL. */
static const char *value_of(const statement *st, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = st->text; (at = strstr(at, name)) != NULL; at += length) {
        if (at > st->text && at[-1] == ' ' && at[length] == '=') {
            return at + length + 1;
        }
    }
    return NULL;
}

static int64_t number(const statement *st, const char *name, int64_t missing)
{
    const char *value = value_of(st, name);
    return value ? strtoll(value, NULL, 0) : missing;
}

static int64_t clock_at(double us)
{
    return SCRIPT_ZERO + script_ns(us);
}

/* Reads one time, or two. */
static bool times(const statement *st, const char *name, double *begin, double *end)
{
    const char *value = value_of(st, name);
    char *rest;
    if (!value) {
        return false;
    }
    *begin = *end = strtod(value, &rest);
    if (*rest == '-') {
        *end = strtod(rest + 1, NULL);
    }
    return true;
}

static double at_of(const statement *st)
{
    double begin, end;
    if (!times(st, "at", &begin, &end)) {
        wrong(st, "at= is missing");
    }
    return begin;
}

void script_begin(script *s)
{
    memset(s, 0, sizeof *s);
}

void script_release(script *s)
{
    free(s->records);
    memset(s, 0, sizeof *s);
}

hdi_record *script_add(script *s, int type, int64_t us)
{
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 64;
        s->records = realloc(s->records, s->room * sizeof *s->records);
        if (!s->records) {
            abort();
        }
    }
    hdi_record *r = &s->records[s->n++];
    memset(r, 0, sizeof *r);
    r->type = (uint8_t)type;
    r->time = SCRIPT_ZERO + us * 1000;
    return r;
}

static hdi_record *add(script *s, const statement *st, int type, double us)
{
    hdi_record *r = script_add(s, type, 0);
    r->time = clock_at(us);
    r->thread = (uint32_t)number(st, "thread", 5);
    r->device = (uint8_t)number(st, "device", 0);
    return r;
}

static void add_text(script *s, const char *text)
{
    size_t at = s->n - 1, length = strlen(text);
    for (size_t i = 0; i < length; i += HDI_RECORD_TEXT_BYTES) {
        hdi_record *r = script_add(s, HDI_RECORD_TEXT, 0);
        size_t part = length - i < HDI_RECORD_TEXT_BYTES ? length - i : HDI_RECORD_TEXT_BYTES;
        memset(r, 0, sizeof *r);
        r->text.type = HDI_RECORD_TEXT;
        r->text.bytes = (uint8_t)part;
        memcpy(r->text.text, text + i, part);
        s->records[at].texts++;
    }
}

/* Reads "0.1:4". */
static uint32_t lane_of(const statement *st, const char *text, uint64_t *position)
{
    unsigned device, lane;
    unsigned long long where = 0;
    if (sscanf(text, "%u.%u:%llu", &device, &lane, &where) < 2 || device >= 32) {
        wrong(st, "a lane is DEVICE.LANE");
    }
    if (position) {
        *position = where;
    }
    return SCRIPT_LANE(device, lane);
}

static int choose(const statement *st, const char *word, const char *const *words, int n)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(word, words[i]) == 0) {
            return i;
        }
    }
    wrong(st, word);
    return 0;
}
#define CHOOSE(st, word, ...)                                                                                          \
    choose(st, word, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* ---- statements ---- */

static void do_trace(script *s, const statement *st)
{
    const char *detail = value_of(st, "detail");
    hdi_record *r = add(s, st, HDI_RECORD_TRACE, (double)number(st, "at", 0));
    r->kind = detail && strncmp(detail, "full", 4) == 0    ? HDI_RECORD_DETAIL_FULL
              : detail && strncmp(detail, "cupti", 5) == 0 ? HDI_RECORD_DETAIL_CUPTI
                                                           : HDI_RECORD_DETAIL_EDGES;
    r->device = (uint8_t)number(st, "devices", 1);
    r->trace.magic = HDI_RECORD_MAGIC;
    r->trace.version = HDI_RECORD_VERSION;
    r->trace.process = (uint32_t)number(st, "process", 4711);
    r->trace.placement = 1;
    r->trace.since_1970 = INT64_C(1700000000000000000);
    r->trace.run = (uint32_t)number(st, "run", 1);
    memset(s->ends, 0, sizeof s->ends);
}

static void do_lane(script *s, const statement *st, const char *word)
{
    const char *kind = value_of(st, "kind");
    char text[16];
    hdi_record *r = add(s, st, HDI_RECORD_LANE, 0);
    r->a_lane.lane = lane_of(st, word, NULL);
    r->a_lane.slots = 1024;
    sscanf(kind ? kind : "program", "%15[a-z]", text);
    r->kind = (uint8_t)(1 + CHOOSE(st, text, "program", "in", "out", "on", "peer", "claim", "other"));
}

static void do_name(script *s, const statement *st, const char *word)
{
    unsigned long long n = 0;
    char name[256] = "";
    if (sscanf(st->text, "name %*s %llu %255[^\n]", &n, name) != 2) {
        wrong(st, "a name is KIND NUMBER TEXT");
    }
    hdi_record *r = add(s, st, HDI_RECORD_NAME, 0);
    r->kind = (uint8_t)(1 + CHOOSE(st, word, "kernel", "label", "range", "activity", "thread", "option"));
    r->name.number = n;
    add_text(s, name);
}

static void add_waits(script *s, const statement *st, uint32_t lane, uint64_t position, double at, uint16_t *count)
{
    *count = 0;
    for (const char *w = st->text; (w = strstr(w, " wait=")) != NULL; w += 6) {
        hdi_record *r = add(s, st, HDI_RECORD_WAIT, at);
        r->kind = 1;
        r->wait.lane = lane;
        r->wait.position = position;
        r->wait.other_lane = lane_of(st, w + 6, &r->wait.other_position);
        r->wait.label = (uint32_t)number(st, "label", 0);
        r->wait.buffer = r->wait.label;
        r->wait.high_unit = (uint32_t)number(st, "bytes", 0);
        r->wait.unit = 1;
        ++*count;
    }
}

static void add_span(script *s, const statement *st, uint32_t lane, uint64_t before, uint64_t position, int op,
                     bool one)
{
    double began, ended;
    if (!times(st, "span", &began, &ended)) {
        return;
    }
    hdi_record *r = add(s, st, HDI_RECORD_SPAN, (double)number(st, "written", (int64_t)ended + 1));
    r->kind = one ? HDI_RECORD_SPAN_ONE : HDI_RECORD_SPAN_EDGES;
    r->device = (uint8_t)(lane / HDI_RECORD_LANES);
    r->span.lane = lane;
    r->span.way = (uint32_t)script_ns(number(st, "arrives", 0));
    r->span.before = before;
    r->span.position = position;
    r->span.began = script_ns(began);
    r->span.ended = script_ns(ended);
    r->span.op = (uint32_t)op;
    r->span.by_clock = (uint32_t)number(st, "clock", 0);
    r->span.began += r->span.by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK ? SCRIPT_ZERO : 0;
    r->span.ended += r->span.by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK ? SCRIPT_ZERO : 0;
}

static void do_op(script *s, const statement *st, const char *word)
{
    char kind[16];
    double at = at_of(st), time, end;
    uint64_t position;
    uint32_t lane = lane_of(st, word, &position);
    uint16_t waits;
    if (sscanf(st->text, "op %*s %15s", kind) != 1) {
        wrong(st, "an operation has a kind");
    }
    add_waits(s, st, lane, position, at, &waits);
    int op = 1 + CHOOSE(st, kind, "launch", "copy", "fill", "matmul", "call", "mark", "claim");
    uint64_t before = s->ends[lane];
    hdi_record *r = add(s, st, HDI_RECORD_SUBMIT, at);
    r->kind = (uint8_t)op;
    r->submit.lane = lane;
    r->submit.kernel = (uint32_t)number(st, op == HDI_RECORD_OP_COPY ? "way" : "kernel", 1);
    r->submit.position = position;
    r->submit.before = before;
    r->submit.bytes = (uint64_t)number(st, "bytes", 0);
    r->submit.blocks = op == HDI_RECORD_OP_COPY ? (uint32_t)number(st, "chunk", 0) : 1;
    r->submit.threads = 64, r->submit.ring = 1;
    r->submit.src = (uint8_t)number(st, "src", 255);
    r->submit.dst = (uint8_t)number(st, "dst", 255);
    r->submit.waits = (uint16_t)number(st, "waits", waits);
    s->ends[lane] = position;
    if (times(st, "issue", &time, &end)) {
        r = add(s, st, HDI_RECORD_ISSUE, time);
        r->issue.lane = lane, r->issue.count = 1, r->issue.before = before, r->issue.position = position;
        r->issue.returned = clock_at(end > time ? end : time + 1);
        r->kind = (uint8_t)number(st, "refused", 0);
    }
    add_span(s, st, lane, before, position, op, true);
    if (times(st, "claimed", &time, &end)) { /* at the position before its end */
        r = add(s, st, HDI_RECORD_DONE, time);
        r->done.lane = lane, r->done.before = before, r->done.position = position - 1;
    }
    if (times(st, "done", &time, &end)) {
        r = add(s, st, HDI_RECORD_DONE, time);
        r->done.lane = lane, r->done.before = before, r->done.position = position;
    }
}

static void do_span(script *s, const statement *st, const char *word)
{
    uint64_t position;
    uint32_t lane = lane_of(st, word, &position);
    add_span(s, st, lane, (uint64_t)number(st, "from", 0), position, (int)number(st, "op", HDI_RECORD_OP_LAUNCH),
             false);
}

static void do_transfer(script *s, const statement *st, const char *word)
{
    hdi_record *r = add(s, st, HDI_RECORD_TRANSFER, at_of(st));
    double time, end;
    r->transfer.lane = lane_of(st, word, &r->transfer.position);
    r->kind = (uint8_t)number(st, "way", HDI_RECORD_WAY_WRITE);
    r->transfer.src = (uint8_t)number(st, "src", 255);
    r->transfer.dst = (uint8_t)number(st, "dst", 255);
    r->transfer.bytes = (uint64_t)number(st, "bytes", 0);
    r->transfer.returned = times(st, "returned", &time, &end) ? clock_at(time) : r->time;
}

static void do_memory(script *s, const statement *st, const char *word, int type)
{
    hdi_record *r = add(s, st, type, at_of(st));
    if (type == HDI_RECORD_MEMORY) {
        r->device = (uint8_t)strtoul(word, NULL, 0);
        r->memory.in_use = (uint64_t)number(st, "use", 0);
        r->memory.held = (uint64_t)number(st, "held", 0);
        r->memory.limit = (uint64_t)number(st, "limit", 0);
        return;
    }
    r->kind = (uint8_t)number(st, "kind", 0);
    r->alloc.buffer = strtoull(word, NULL, 0);
    r->alloc.bytes = (uint64_t)number(st, "bytes", 0);
    r->alloc.label = (uint32_t)number(st, "label", 0);
    r->alloc.rungs = (uint32_t)number(st, "rungs", 0);
    r->alloc.took = 1000 * number(st, "took", 0);
    r->alloc.address = (uint64_t)number(st, "address", 0);
}

static void do_pause(script *s, const statement *st, const char *word)
{
    double begin, end;
    if (!times(st, "at", &begin, &end)) {
        wrong(st, "a pause has at=BEGIN-END");
    }
    hdi_record *r = add(s, st, HDI_RECORD_PAUSE, begin);
    const char *lane = value_of(st, "lane");
    r->kind = (uint8_t)(1 + CHOOSE(st, word, "room", "wait", "memory", "map", "code", "chunk", "callback"));
    r->pause.ended = clock_at(end);
    r->pause.lane = lane ? lane_of(st, lane, NULL) : 0;
    r->pause.position = (uint64_t)number(st, "position", 0);
    r->pause.detail = (uint32_t)number(st, "detail", 0);
}

static void do_rank(script *s, const statement *st, const char *word)
{
    hdi_record *r = add(s, st, HDI_RECORD_RANK, at_of(st));
    r->rank.rank = (uint32_t)strtoul(word, NULL, 0);
    r->rank.ranks = (uint32_t)number(st, "of", 2);
    r->rank.run = (uint64_t)number(st, "run", 1);
    r->rank.offset = 1000 * number(st, "offset", 0);
    r->rank.within = 1000 * number(st, "within", 0);
}

static void do_message(script *s, const statement *st, const char *word)
{
    double posted, ended, ready, same;
    if (!times(st, "at", &posted, &ended)) {
        wrong(st, "a message has at=POSTED-ENDED");
    }
    hdi_record *r = add(s, st, HDI_RECORD_MESSAGE, posted);
    const char *op = value_of(st, "op");
    uint64_t position = 0;
    uint32_t lane = op ? lane_of(st, op, &position) : 0;
    r->kind = (uint8_t)(1 + CHOOSE(st, word, "send", "recv", "bcast", "reduce", "allreduce", "allgather", "alltoall",
                                   "barrier"));
    r->message.op = position | (uint64_t)lane << HDI_RECORD_MESSAGE_POSITION_BITS;
    r->message.peer = (int32_t)number(st, "peer", -1);
    r->message.tag = (int32_t)number(st, "tag", 0);
    r->message.communicator = (uint32_t)number(st, "comm", 1);
    r->message.order = (uint32_t)number(st, "order", 1);
    r->message.bytes = (uint64_t)number(st, "bytes", 0);
    r->message.ready = times(st, "ready", &ready, &same) ? clock_at(ready) : r->time;
    r->message.ended = clock_at(ended);
}

static void do_behind(script *s, const statement *st, const char *word)
{
    hdi_record *r = add(s, st, HDI_RECORD_BEHIND, at_of(st));
    const char *other = value_of(st, "other");
    r->behind.lane = lane_of(st, word, &r->behind.before);
    r->behind.other_lane = lane_of(st, other ? other : "", &r->behind.other_position);
}

static void do_rest(script *s, const statement *st, const char *verb, const char *word)
{
    double begin = 0, end = 0;
    char text[256] = "";
    times(st, "at", &begin, &end);
    if (strcmp(verb, "device") == 0) {
        hdi_record *r = add(s, st, HDI_RECORD_DEVICE, 0);
        r->device = (uint8_t)strtoul(word, NULL, 0);
        r->a_device.memory = UINT64_C(1) << 30;
        sscanf(value_of(st, "name") ? value_of(st, "name") : "", "%255[^\n]", text);
        add_text(s, text);
    } else if (strcmp(verb, "clock") == 0) {
        hdi_record *r = add(s, st, HDI_RECORD_CLOCK, begin);
        r->device = (uint8_t)strtoul(word, NULL, 0);
        r->clock.own = 1000 * number(st, "own", 0);
        r->clock.within = number(st, "within", 0);
    } else if (strcmp(verb, "loss") == 0 || strcmp(verb, "restart") == 0) {
        bool loss = verb[0] == 'l';
        hdi_record *r = add(s, st, loss ? HDI_RECORD_LOSS : HDI_RECORD_RESTART, begin);
        r->device = (uint8_t)strtoul(word, NULL, 0);
        r->loss.ended = clock_at(end);
        if (loss && sscanf(st->text, "loss %*s at=%*s %255[^\n]", text) == 1) {
            add_text(s, text);
        }
    } else if (strcmp(verb, "push") == 0 || strcmp(verb, "pop") == 0) {
        add(s, st, verb[1] == 'u' ? HDI_RECORD_PUSH : HDI_RECORD_POP, begin)->range.name = strtoull(word, NULL, 0);
    } else if (strcmp(verb, "interval") == 0) {
        hdi_record *r = add(s, st, HDI_RECORD_INTERVAL, begin);
        r->interval.ended = clock_at(end);
        r->interval.name = strtoull(word, NULL, 0);
        r->interval.began_by = (uint32_t)number(st, "from", r->thread);
    } else if (strcmp(verb, "dropped") == 0) {
        hdi_record *r = add(s, st, HDI_RECORD_DROPPED, begin);
        r->kind = (uint8_t)number(st, "kind", 0);
        r->dropped.count = strtoull(word, NULL, 0);
        r->dropped.partial = (uint64_t)number(st, "partial", 0);
    } else if (strcmp(verb, "activity") == 0) {
        hdi_record *r = add(s, st, HDI_RECORD_ACTIVITY, begin);
        r->kind = (uint8_t)(1 + CHOOSE(st, word, "kernel", "copy", "fill"));
        r->activity.ended = clock_at(end);
        r->activity.name = (uint64_t)number(st, "name", 0);
        r->activity.stream = (uint32_t)number(st, "stream", 7);
        r->activity.bytes = (uint64_t)number(st, "bytes", 0);
    } else if (strcmp(verb, "end") == 0) {
        add(s, st, HDI_RECORD_END, begin);
    } else {
        wrong(st, "there is no such statement");
    }
}

static void run_line(script *s, const char *line, size_t length)
{
    statement st = {.line = line};
    char verb[16] = "", word[64] = "";
    snprintf(st.text, sizeof st.text, "%.*s", (int)length, line);
    if (strchr(st.text, '#')) {
        *strchr(st.text, '#') = 0;
    }
    memmove(st.text, st.text + strspn(st.text, " "), strlen(st.text + strspn(st.text, " ")) + 1);
    if (sscanf(st.text, "%15s %63s", verb, word) < 1) {
        return;
    }
    if (strcmp(verb, "trace") == 0) {
        do_trace(s, &st);
    } else if (strcmp(verb, "lane") == 0) {
        do_lane(s, &st, word);
    } else if (strcmp(verb, "name") == 0) {
        do_name(s, &st, word);
    } else if (strcmp(verb, "op") == 0) {
        do_op(s, &st, word);
    } else if (strcmp(verb, "span") == 0) {
        do_span(s, &st, word);
    } else if (strcmp(verb, "transfer") == 0) {
        do_transfer(s, &st, word);
    } else if (strcmp(verb, "alloc") == 0) {
        do_memory(s, &st, word, HDI_RECORD_ALLOC);
    } else if (strcmp(verb, "free") == 0) {
        do_memory(s, &st, word, HDI_RECORD_FREE);
    } else if (strcmp(verb, "relabel") == 0) {
        do_memory(s, &st, word, HDI_RECORD_LABEL);
    } else if (strcmp(verb, "behind") == 0) {
        do_behind(s, &st, word);
    } else if (strcmp(verb, "memory") == 0) {
        do_memory(s, &st, word, HDI_RECORD_MEMORY);
    } else if (strcmp(verb, "pause") == 0) {
        do_pause(s, &st, word);
    } else if (strcmp(verb, "rank") == 0) {
        do_rank(s, &st, word);
    } else if (strcmp(verb, "message") == 0) {
        do_message(s, &st, word);
    } else {
        do_rest(s, &st, verb, word);
    }
}

void script_run(script *s, const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        run_line(s, text, length);
        text += length + (text[length] == '\n');
    }
}
