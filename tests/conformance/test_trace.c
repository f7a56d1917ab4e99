/* test_trace.c - hd_trace_start, hd_trace_stop, ranges, and the content of the file.
 *
 * Promise: A trace records each operation once, with its waits and times; it counts lost records.
 *
 * The times are those of its issue, its run and its end.
 *
 * Threads: the main one, and those of two cases.
 * Locks: none.
 * Always: no check measures how long something takes. The program's own readings of the clock bound
 * all times.
 */
#include "traces.h"

#include <fcntl.h>
#include <stdatomic.h>
#include "workers.h"

enum { words = 4096, bytes = words * 4, RANGES = 1000 };

static const hdi_record *submit_of(const content *c, hd_ticket ticket)
{
    const hdi_record *found = NULL;
    size_t at = 0;
    for (const hdi_record *r; (r = next(c, HDI_RECORD_SUBMIT, &at)) != NULL;) {
        if (r->submit.lane == global(ticket.lane) && r->submit.position == ticket.sequence) {
            CONF_TRUE(found == NULL); /* each once */
            found = r;
        }
    }
    return found;
}

/* True if the file contains a name of that kind, with that number and text. */
static bool is_named(const content *c, uint8_t kind, uint64_t number, const char *text)
{
    for (size_t i = 0; i < c->n; i++) {
        const hdi_record *r = &c->records[i];
        if (r->type == HDI_RECORD_NAME && r->kind == kind && r->name.number == number) {
            char name[1024] = "";
            size_t length = 0;
            for (uint8_t p = 1; p <= r->texts && i + p < c->n; p++) {
                const hdi_record *piece = &c->records[i + p];
                CONF_EQUAL(piece->type, HDI_RECORD_TEXT);
                memcpy(name + length, piece->text.text, piece->text.bytes);
                length += piece->text.bytes;
            }
            if (strcmp(name, text) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* ---- cases ---- */

static void check_operation(const content *c, hd_ticket ticket, const char *kernel, int64_t from, int64_t to)
{
    const hdi_record *submit = submit_of(c, ticket), *issue = covering(c, HDI_RECORD_ISSUE, ticket);
    const hdi_record *done = covering(c, HDI_RECORD_DONE, ticket), *span = covering(c, HDI_RECORD_SPAN, ticket);
    CONF_TRUE(submit && issue && done);
    CONF_TRUE(from <= submit->time && submit->time <= issue->issue.returned);
    CONF_TRUE(issue->time <= issue->issue.returned && issue->time <= done->time && done->time <= to);
    CONF_EQUAL(submit->thread, (uint32_t)syscall(SYS_gettid));
    CONF_EQUAL(submit->kind, HDI_RECORD_OP_LAUNCH);
    CONF_TRUE(is_named(c, HDI_RECORD_NAME_KERNEL, submit->submit.kernel, kernel));
    CONF_TRUE(submit->submit.blocks >= 1 && submit->submit.threads >= 1);
    if (!span) {
        /* on a busy machine events may exceed their budget */
        CONF_EQUAL(c->records[0].kind, HD_TRACE_EDGES);
        return;
    }
    bool began = span->span.by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK;
    bool ended = span->span.by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK;
    CONF_TRUE(began != ended || span->span.began <= span->span.ended);
    const hdi_record *first = covering(c, HDI_RECORD_ISSUE, (hd_ticket){ticket.lane, span->span.before + 1});
    CONF_TRUE(!began || (first && span->span.began >= first->time));
    CONF_TRUE(!ended || span->span.ended >= issue->issue.returned);
}

static void each_operation_is_there_once(void **state)
{
    (void)state;
    for (int detail = HD_TRACE_EDGES; detail <= HD_TRACE_FULL; detail++) {
        hd_runtime *runtime = conf_open(NULL);
        hd_lane *lane = conf_default_lane(runtime, 0), *other = NULL;
        conf_kernels k = conf_builtins(runtime);
        hd_buffer *x = NULL, *y = NULL;
        CONF_OK(hd_lane_create(runtime, 0, &other));
        hd_alloc_options options = {.size = sizeof options, .label = "the x"};
        int64_t from = conf_now();
        hd_trace_options how = {.size = sizeof how, .detail = (hd_trace_detail)detail};
        CONF_OK(hd_trace_start(runtime, in_folder("t"), &how));
        CONF_OK(hd_alloc_with(lane, bytes, &options, &x));
        CONF_OK(hd_alloc(lane, bytes, &y));
        enum { ROUNDS = 40 };
        hd_ticket first[ROUNDS], second[ROUNDS];
        for (int i = 0; i < ROUNDS; i++) {
            CONF_OK(conf_fill(lane, k, x, 0, words, (uint32_t)i, &first[i]));
            CONF_OK(conf_copy(other, k, y, 0, x, 0, words, &second[i]));
        }
        CONF_OK(hd_wait(second[ROUNDS - 1], 60 * CONF_SECOND));
        uint32_t word;
        CONF_OK(hd_read(y, 0, &word, 4));
        hd_free(y);
        hd_trace_info info = {.size = sizeof info};
        CONF_OK(hd_trace_stop(runtime, &info));
        int64_t to = conf_now();
        content c = read_file(file_path);
        CONF_EQUAL(info.records, c.n);
        CONF_EQUAL(info.bytes, c.n * sizeof(hdi_record));
        CONF_EQUAL(info.dropped, 0);
        CONF_EQUAL(count(&c, HDI_RECORD_DROPPED), 0);
        CONF_EQUAL(c.records[c.n - 1].type, HDI_RECORD_END);
        CONF_EQUAL(c.records[0].kind, (uint8_t)detail);
        size_t waits = 0, at = 0;
        for (int i = 0; i < ROUNDS; i++) {
            check_operation(&c, first[i], "hd_fill_u32", from, to);
            check_operation(&c, second[i], "hd_copy_u32", from, to);
        }
        for (const hdi_record *r; (r = next(&c, HDI_RECORD_WAIT, &at)) != NULL;) {
            if (r->wait.lane == global(other) && r->wait.other_lane == global(lane)) {
                waits++;
                CONF_EQUAL(r->wait.low_unit, 0);
                CONF_EQUAL(r->wait.high_unit * r->wait.unit, (uint32_t)bytes);
                CONF_TRUE(is_named(&c, HDI_RECORD_NAME_LABEL, r->wait.label, "the x"));
            }
        }
        /* inline, the awaited work may be done at once */
        CONF_TRUE(conf_is_inline(runtime) || waits > 0);
        if (detail == HD_TRACE_FULL) {
            at = 0;
            for (const hdi_record *r; (r = next(&c, HDI_RECORD_SPAN, &at)) != NULL;) {
                CONF_EQUAL(r->kind, HDI_RECORD_SPAN_ONE);
            }
        }
        CONF_EQUAL(count(&c, HDI_RECORD_ALLOC), 2);
        CONF_EQUAL(count(&c, HDI_RECORD_FREE), 1);
        CONF_EQUAL(count(&c, HDI_RECORD_TRANSFER), 1);
        CONF_TRUE(count(&c, HDI_RECORD_SPAN) >= 1 && count(&c, HDI_RECORD_CLOCK) >= 1 &&
                  count(&c, HDI_RECORD_LANE) >= 2);
        free(c.records);
        hd_free(x);
        conf_close(runtime);
    }
}

static void transfers_have_their_way_and_bytes(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL, *y = NULL, *pinned = NULL;
    hd_alloc_options options = {.size = sizeof options, .label = "destination"};
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(hd_alloc_with(lane, bytes, &options, &y));
    CONF_OK(hd_alloc_host(runtime, bytes, &pinned));
    hd_ticket ticket;
    CONF_OK(hd_fill(pinned, 0, 1, bytes, NULL));
    CONF_OK(hd_copy(x, 0, pinned, 0, bytes, NULL));
    CONF_OK(hd_copy(y, 0, x, 0, bytes / 2, NULL));
    CONF_OK(hd_copy(pinned, 0, y, 0, bytes / 4, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    void *mine = conf_memory(bytes);
    CONF_OK(hd_write(x, 0, memset(mine, 1, bytes), bytes / 8));
    CONF_OK(hd_read(x, 0, mine, bytes / 16));
    CONF_OK(hd_write(pinned, 0, mine, bytes / 32));
    CONF_OK(hd_read(pinned, 0, mine, bytes / 64));
    const hd_box rows = {
        .size = sizeof rows, .row = 8, .dims = 1, .count = {4}, .dst_stride = {16}, .src_stride = {16}};
    CONF_OK(hd_write_box(x, 0, mine, &rows));
    CONF_OK(hd_read_box(x, 0, mine, &rows));
    CONF_OK(hd_write_box(pinned, 0, mine, &rows));
    CONF_OK(hd_read_box(pinned, 0, mine, &rows));
    free(mine);
    CONF_OK(hd_trace_stop(runtime, NULL));
    content c = read_file(file_path);
    static const struct {
        uint8_t way, src, dst;
        uint64_t bytes;
    } wanted[] = {{HDI_RECORD_WAY_TO_DEVICE, HDI_RECORD_NO_DEVICE, 0, bytes},
                  {HDI_RECORD_WAY_ON_DEVICE, 0, 0, bytes / 2},
                  {HDI_RECORD_WAY_TO_HOST, 0, HDI_RECORD_NO_DEVICE, bytes / 4},
                  {HDI_RECORD_WAY_WRITE, HDI_RECORD_NO_DEVICE, 0, bytes / 8},
                  {HDI_RECORD_WAY_READ, 0, HDI_RECORD_NO_DEVICE, bytes / 16},
                  {HDI_RECORD_WAY_WRITE, HDI_RECORD_NO_DEVICE, HDI_RECORD_NO_DEVICE, bytes / 32},
                  {HDI_RECORD_WAY_READ, HDI_RECORD_NO_DEVICE, HDI_RECORD_NO_DEVICE, bytes / 64},
                  {HDI_RECORD_WAY_WRITE, HDI_RECORD_NO_DEVICE, 0, 32},
                  {HDI_RECORD_WAY_READ, 0, HDI_RECORD_NO_DEVICE, 32},
                  {HDI_RECORD_WAY_WRITE, HDI_RECORD_NO_DEVICE, HDI_RECORD_NO_DEVICE, 32},
                  {HDI_RECORD_WAY_READ, HDI_RECORD_NO_DEVICE, HDI_RECORD_NO_DEVICE, 32}};
    size_t at = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const hdi_record *r = next(&c, HDI_RECORD_TRANSFER, &at);
        CONF_TRUE(r != NULL);
        CONF_EQUAL(r->kind, wanted[i].way);
        CONF_EQUAL(r->transfer.src, wanted[i].src);
        CONF_EQUAL(r->transfer.dst, wanted[i].dst);
        CONF_EQUAL(r->transfer.bytes, wanted[i].bytes);
        CONF_TRUE(r->time <= r->transfer.returned);
        CONF_TRUE(i != 1 || is_named(&c, HDI_RECORD_NAME_LABEL, r->transfer.dst_label, "destination"));
    }
    CONF_TRUE(next(&c, HDI_RECORD_TRANSFER, &at) == NULL);
    const hdi_record *copy = submit_of(&c, ticket);
    CONF_TRUE(copy && copy->kind == HDI_RECORD_OP_COPY && copy->submit.bytes == bytes / 4);
    CONF_TRUE(copy->submit.kernel == HDI_RECORD_WAY_TO_HOST && copy->submit.src == 0 &&
              copy->submit.dst == HDI_RECORD_NO_DEVICE);
    at = 0;
    /* the program's copy, then one through chunks */
    for (const hdi_record *r; (r = next(&c, HDI_RECORD_SUBMIT, &at)) != NULL;) {
        bool own = r->submit.bytes == bytes || r->submit.bytes == bytes / 2 || r->submit.bytes == bytes / 4;
        CONF_TRUE(r->kind != HDI_RECORD_OP_COPY || r->submit.blocks == (own ? 0 : 1));
    }
    free(c.records);
    conf_close(runtime);
}

/* Copies one after the other until one fails. `behind` reads the bytes that it should have written;
 * if its lane is NULL, it was refused at once. */
static hd_ticket fail_a_copy(hd_buffer *device, hd_buffer *pinned, hd_ticket *behind)
{
    hd_ticket ticket = {NULL, 0};
    hd_status status = HD_OK;
    /* the runtime may have made copies before */
    for (int tries = 0; status == HD_OK && tries < 20; tries++) {
        *behind = (hd_ticket){NULL, 0};
        CONF_OK(hd_copy(pinned, 0, device, 0, bytes, &ticket));
        (void)hd_copy(device, bytes, pinned, 0, bytes, behind);
        status = hd_wait(ticket, 60 * CONF_SECOND);
        if (behind->lane) {
            CONF_EQUAL(hd_wait(*behind, 60 * CONF_SECOND), status);
        }
    }
    CONF_FAILS(status, HD_ERROR_FAILED);
    return ticket;
}

/* In a lane that continues after a failure, as lanes for copies do. */
static void what_the_driver_did_not_get_is_marked(void **state)
{
    (void)state;
    for (int detail = HD_TRACE_EDGES; detail <= HD_TRACE_FULL; detail++) {
        hd_runtime *runtime = conf_open("fault=cuMemcpyDtoHAsync:3=1 delay=cuMemcpyDtoHAsync:3=100000");
        hd_buffer *device = NULL, *pinned = NULL;
        CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 2 * bytes, &device));
        CONF_OK(hd_alloc_host(runtime, bytes, &pinned));
        CONF_OK(hd_fill(device, 0, 1, 2 * bytes, NULL));
        CONF_OK(hd_fill(pinned, 0, 1, bytes, NULL));
        hd_trace_options how = {.size = sizeof how, .detail = (hd_trace_detail)detail};
        CONF_OK(hd_trace_start(runtime, in_folder("t"), &how));
        hd_ticket good, behind, failed = fail_a_copy(device, pinned, &behind);
        CONF_OK(hd_copy(pinned, 0, device, 0, bytes, &good));
        CONF_OK(hd_wait(good, 60 * CONF_SECOND));
        CONF_TRUE(good.lane == failed.lane); /* only the record shows the difference */
        CONF_OK(hd_trace_stop(runtime, NULL));
        content c = read_file(file_path);
        const hdi_record *refused = covering(&c, HDI_RECORD_ISSUE, failed);
        CONF_TRUE(refused && refused->kind == 1);
        CONF_TRUE(!covering(&c, HDI_RECORD_SPAN, failed));
        CONF_EQUAL(covering(&c, HDI_RECORD_ISSUE, good)->kind, 0);
        CONF_TRUE(detail != HD_TRACE_FULL || covering(&c, HDI_RECORD_SPAN, good));
        if (behind.lane) { /* it was submitted before the failure was noticed */
            const hdi_record *passed = covering(&c, HDI_RECORD_ISSUE, behind);
            CONF_TRUE(passed && passed->kind == 1 && !covering(&c, HDI_RECORD_SPAN, behind));
        }
        free(c.records);
        hd_free(device);
        hd_free(pinned);
        conf_close(runtime);
    }
}

static void pinned_memory_is_there_like_others(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *pinned = NULL, *piece = NULL;
    hd_alloc_options options = {.size = sizeof options, .flags = HD_ALLOC_DEDICATED, .label = "a piece"};
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    CONF_OK(hd_alloc_host(runtime, bytes, &pinned));
    CONF_OK(hd_alloc_with(lane, bytes, &options, &piece));
    CONF_OK(hd_free(pinned));
    CONF_OK(hd_free(piece));
    CONF_OK(hd_trace_stop(runtime, NULL));
    content c = read_file(file_path);
    size_t from = 0, until = 0;
    for (uint8_t i = 0; i < 2; i++) {
        const hdi_record *alloc = next(&c, HDI_RECORD_ALLOC, &from), *freed = next(&c, HDI_RECORD_FREE, &until);
        CONF_TRUE(alloc && freed && alloc->alloc.buffer == freed->alloc.buffer);
        CONF_TRUE(alloc->time <= freed->time && alloc->alloc.took >= 0);
        CONF_EQUAL(alloc->alloc.bytes, bytes);
        CONF_EQUAL(alloc->kind, i == 0 ? 1 : 0);
        CONF_EQUAL(alloc->device, i == 0 ? HDI_RECORD_NO_DEVICE : 0);
        CONF_TRUE(i == 0 || is_named(&c, HDI_RECORD_NAME_LABEL, alloc->alloc.label, "a piece"));
    }
    free(c.records);
    conf_close(runtime);
}

static void a_later_label_is_there(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *x = NULL;
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &x));
    CONF_OK(hd_buffer_set_label(x, "the late one"));
    CONF_OK(hd_trace_stop(runtime, NULL));
    content c = read_file(file_path);
    size_t at = 0;
    const hdi_record *alloc = next(&c, HDI_RECORD_ALLOC, &at), *label = next(&c, HDI_RECORD_LABEL, &at);
    CONF_TRUE(alloc && label && alloc->alloc.label == 0);
    CONF_TRUE(label->time >= alloc->time && label->alloc.buffer == alloc->alloc.buffer);
    CONF_TRUE(label->alloc.bytes == bytes && label->device == 0);
    CONF_TRUE(is_named(&c, HDI_RECORD_NAME_LABEL, label->alloc.label, "the late one"));
    free(c.records);
    conf_close(runtime);
}

/* Their short numbers are made so that both are the same. */
static void names_that_are_alike_in_number_are_two(void **state)
{
    (void)state;
    static const char *const names[2] = {"costarring", "liquid"};
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *x[2] = {NULL, NULL};
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &x[1]));
    /* in the trace only the record of its end names this label */
    CONF_OK(hd_buffer_set_label(x[1], names[1]));
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &x[0]));
    CONF_OK(hd_buffer_set_label(x[0], names[0]));
    for (int i = 0; i < 2; i++) {
        CONF_OK(hd_range_push(runtime, names[i]));
        hd_free(x[i]);
        CONF_OK(hd_range_pop(runtime));
    }
    CONF_OK(hd_trace_stop(runtime, NULL));
    content c = read_file(file_path);
    size_t at = 0, free_at = 0;
    const hdi_record *label = next(&c, HDI_RECORD_LABEL, &at);
    const hdi_record *range[2], *end[2];
    at = 0;
    for (int i = 0; i < 2; i++) {
        range[i] = next(&c, HDI_RECORD_PUSH, &at);
        end[i] = next(&c, HDI_RECORD_FREE, &free_at);
        CONF_TRUE(label && range[i] && end[i]);
        CONF_TRUE(is_named(&c, HDI_RECORD_NAME_RANGE, range[i]->range.name, names[i]));
        CONF_TRUE(is_named(&c, HDI_RECORD_NAME_LABEL, end[i]->alloc.label, names[i]));
    }
    CONF_TRUE(range[0]->range.name != range[1]->range.name);
    CONF_TRUE(end[0]->alloc.label != end[1]->alloc.label);
    CONF_EQUAL(end[0]->alloc.label, label->alloc.label);
    free(c.records);
    conf_close(runtime);
}

/* A refused allocation tries the threads' caches, and waits for nothing. One above the limit does
 * not even try them. */
static void rungs_are_those_that_were_taken(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("memory_limit=64M memory_reclaim=0 memory_timeout=0");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *most = NULL, *x = NULL, *none = NULL;
    CONF_OK(hd_alloc(lane, (size_t)40 << 20, &most));
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    CONF_FAILS(hd_alloc(lane, (size_t)65 << 20, &none), HD_ERROR_MEMORY);
    CONF_FAILS(hd_alloc(lane, (size_t)40 << 20, &none), HD_ERROR_MEMORY);
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(hd_trace_stop(runtime, NULL));
    content c = read_file(file_path);
    size_t at = 0;
    const hdi_record *hopeless = next(&c, HDI_RECORD_ALLOC, &at), *refused = next(&c, HDI_RECORD_ALLOC, &at);
    const hdi_record *had = next(&c, HDI_RECORD_ALLOC, &at);
    CONF_TRUE(hopeless && refused && had && hopeless->alloc.bytes == (uint64_t)65 << 20 && had->alloc.bytes == bytes);
    CONF_EQUAL(hopeless->alloc.rungs, HDI_RECORD_RUNG_FAILED);
    CONF_EQUAL(refused->alloc.rungs, HDI_RECORD_RUNG_CACHES | HDI_RECORD_RUNG_FAILED);
    CONF_EQUAL(had->alloc.rungs & (HDI_RECORD_RUNG_CACHES | HDI_RECORD_RUNG_WAITED | HDI_RECORD_RUNG_FAILED), 0);
    free(c.records);
    conf_close(runtime);
}

static void a_claim_that_no_engine_has_ends_too(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *pinned = NULL;
    CONF_OK(hd_alloc_host(runtime, bytes, &pinned));
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    hd_arg use = hd_inout(pinned);
    enum { CLAIMS = 4 };
    int64_t ends[CLAIMS][2];
    for (int i = 0; i < CLAIMS; i++) {
        hd_claim *claim = NULL;
        hd_ticket ticket;
        CONF_OK(hd_claim_begin(runtime, &use, 1, &claim));
        CONF_OK(hd_claim_get_ticket(claim, &ticket));
        CONF_OK(hd_claim_wait(claim, 60 * CONF_SECOND));
        ends[i][0] = conf_now();
        CONF_OK(hd_claim_end(claim, HD_OK));
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
        ends[i][1] = conf_now();
    }
    CONF_OK(hd_trace_stop(runtime, NULL));
    content c = read_file(file_path);
    size_t at = 0;
    for (int i = 0; i < CLAIMS; i++) {
        const hdi_record *submit = next(&c, HDI_RECORD_SUBMIT, &at), *done = NULL;
        CONF_TRUE(submit && submit->kind == HDI_RECORD_OP_CLAIM);
        size_t from = 0;
        do {
            done = next(&c, HDI_RECORD_DONE, &from);
            CONF_TRUE(done != NULL);
        } while (done->done.lane != submit->submit.lane || done->done.position != submit->submit.position);
        CONF_TRUE(ends[i][0] <= done->time && done->time <= ends[i][1]);
        CONF_EQUAL(done->done.before, submit->submit.position - 1); /* it began before */
    }
    free(c.records);
    conf_close(runtime);
}

static void bad_calls_are_refused(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_trace_info info = {.size = sizeof info};
    CONF_FAILS_WITH(hd_trace_stop(runtime, &info), HD_ERROR_NOT_FOUND, "hd_trace_start");
    CONF_FAILS_WITH(hd_trace_start(runtime, NULL, NULL), HD_ERROR_ARGUMENT, "file is null");
    CONF_FAILS_WITH(hd_trace_start(runtime, "", NULL), HD_ERROR_ARGUMENT, "file is empty");
    CONF_FAILS_WITH(hd_trace_start(runtime, in_folder("none/t"), NULL), HD_ERROR_SYSTEM, "none/t");
    hd_trace_options options = {.size = sizeof options, .detail = (hd_trace_detail)9};
    CONF_FAILS_WITH(hd_trace_start(runtime, in_folder("t"), &options), HD_ERROR_ARGUMENT, "9");
    options.size = 1;
    CONF_FAILS_WITH(hd_trace_start(runtime, in_folder("t"), &options), HD_ERROR_ARGUMENT, "size");
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    CONF_FAILS_WITH(hd_trace_start(runtime, "/dev/null", NULL), HD_ERROR_ARGUMENT, file_path);
    info.size = 3;
    /* and the trace continues */
    CONF_FAILS_WITH(hd_trace_stop(runtime, &info), HD_ERROR_ARGUMENT, "size");
    CONF_FAILS_WITH(hd_range_push(runtime, NULL), HD_ERROR_ARGUMENT, "name is null");
    CONF_OK(hd_trace_stop(runtime, NULL));
    CONF_FAILS_WITH(hd_trace_stop(runtime, NULL), HD_ERROR_NOT_FOUND, "hd_trace_start");
    conf_close(runtime);
    CONF_FAILS_WITH(hd_trace_start(runtime, "/dev/null", NULL), HD_ERROR_HANDLE, "closed");
    CONF_FAILS_WITH(hd_range_push(runtime, "x"), HD_ERROR_HANDLE, "closed");
    CONF_FAILS_WITH(hd_range_pop(runtime), HD_ERROR_HANDLE, "closed");
}

static void traces_follow_each_other(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(lane, bytes, &x));
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i % 3);
        hd_ticket before, within, behind;
        CONF_OK(conf_fill(lane, k, x, 0, words, 1, &before));
        CONF_OK(hd_trace_start(runtime, in_folder(name), NULL));
        /* a lane at rest needs no event, which might exceed the budget */
        CONF_OK(hd_wait(before, 60 * CONF_SECOND));
        CONF_OK(conf_fill(lane, k, x, 0, words, 2, &within));
        CONF_OK(hd_wait(within, 60 * CONF_SECOND));
        CONF_OK(hd_trace_stop(runtime, NULL));
        CONF_OK(conf_fill(lane, k, x, 0, words, 3, &behind));
        CONF_OK(hd_wait(behind, 60 * CONF_SECOND));
        content c = read_file(file_path);
        CONF_TRUE(submit_of(&c, within) && !submit_of(&c, before) && !submit_of(&c, behind));
        CONF_TRUE(covering(&c, HDI_RECORD_DONE, within) && covering(&c, HDI_RECORD_SPAN, within));
        CONF_EQUAL(c.records[c.n - 1].type, HDI_RECORD_END);
        free(c.records);
    }
    conf_close(runtime);
}

static void a_trace_of_the_option_ends_with_the_runtime(void **state)
{
    (void)state;
    char settings[256], file[128];
    snprintf(file, sizeof file, "%s", in_folder("option"));
    snprintf(settings, sizeof settings, "trace=%s trace_detail=full", file);
    hd_runtime *runtime = conf_open(settings);
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *x = NULL;
    hd_ticket ticket;
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(conf_fill(lane, k, x, 0, words, 1, &ticket)); /* hd_close waits for it */
    uint32_t number = global(lane);
    conf_close(runtime);
    content c = read_file(file);
    size_t at = 0, done = 0;
    for (const hdi_record *r; (r = next(&c, HDI_RECORD_DONE, &at)) != NULL;) {
        done += r->done.lane == number && r->done.position == ticket.sequence;
    }
    CONF_EQUAL(done, 1);
    CONF_EQUAL(c.records[0].kind, HDI_RECORD_DETAIL_FULL);
    CONF_EQUAL(c.records[c.n - 1].type, HDI_RECORD_END);
    free(c.records);
    hd_runtime *second = conf_open(settings);
    conf_close(second);
    DIR *d = opendir(folder);
    int files = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        files += strncmp(e->d_name, "option", 6) == 0;
    }
    closedir(d);
    CONF_EQUAL(files, 2); /* a number follows the name of the later one */
    snprintf(settings, sizeof settings, "trace=%s/none/t", folder);
    hd_options options = {.size = sizeof options, .settings = settings};
    hd_runtime *none = NULL;
    CONF_FAILS_WITH(hd_open(&options, &none), HD_ERROR_SYSTEM, "none/t");
}

static void ranges_are_nested(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    CONF_OK(hd_range_push(runtime, "before"));
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    char longest[512];
    memset(longest, 'r', sizeof longest);
    longest[sizeof longest - 1] = 0;
    CONF_OK(hd_range_push(runtime, "outer"));
    CONF_OK(hd_range_push(runtime, longest));
    CONF_OK(hd_range_push(runtime, ""));
    for (int i = 0; i < 4; i++) {
        CONF_OK(hd_range_pop(runtime));
    }
    CONF_OK(hd_trace_stop(runtime, NULL));
    CONF_OK(hd_range_pop(runtime));
    content c = read_file(file_path);
    CONF_EQUAL(count(&c, HDI_RECORD_PUSH), 3);
    CONF_EQUAL(count(&c, HDI_RECORD_POP), 4);
    size_t at = 0;
    const hdi_record *first = next(&c, HDI_RECORD_PUSH, &at), *second = next(&c, HDI_RECORD_PUSH, &at);
    CONF_TRUE(first->time <= second->time && first->thread == second->thread);
    CONF_TRUE(is_named(&c, HDI_RECORD_NAME_RANGE, first->range.name, "outer"));
    longest[448] = 0;
    CONF_TRUE(is_named(&c, HDI_RECORD_NAME_RANGE, second->range.name, longest));
    free(c.records);
    conf_close(runtime);
}

static void what_has_no_room_in_the_file_is_counted(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(lane, bytes, &x));
    hd_trace_options options = {.size = sizeof options, .file_limit = 100 * sizeof(hdi_record)};
    CONF_OK(hd_trace_start(runtime, in_folder("t"), &options));
    hd_ticket ticket;
    for (int i = 0; i < 300; i++) {
        CONF_OK(conf_fill(lane, k, x, 0, words, 1, &ticket));
    }
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    hd_trace_info info = {.size = sizeof info};
    CONF_OK(hd_trace_stop(runtime, &info));
    content c = read_file(file_path);
    CONF_EQUAL(c.n, 102); /* with the number of missing records, and the end */
    CONF_EQUAL(c.records[100].type, HDI_RECORD_DROPPED);
    CONF_EQUAL(c.records[100].dropped.count, info.dropped);
    size_t partial = (size_t)c.records[100].dropped.partial;
    CONF_TRUE(partial <= 100);
    for (size_t i = 0; i < 100; i++) { /* records in front of the first check are always complete */
        uint8_t type = c.records[i].type;
        CONF_TRUE(i < 100 - partial || (type != HDI_RECORD_TRACE && type != HDI_RECORD_DEVICE));
    }
    CONF_EQUAL(c.records[101].type, HDI_RECORD_END);
    CONF_TRUE(info.dropped >= 200 && info.records == 102);
    free(c.records);
    conf_close(runtime);
}

/* ---- threads ---- */

typedef struct crowd {
    hd_runtime *runtime;
    conf_kernels k;
    atomic_int ready;
} crowd;

enum { THREADS = 6, EACH = 400 };

static void *submits(void *context)
{
    crowd *c = context;
    hd_lane *lane = NULL;
    hd_buffer *x = NULL;
    hd_ticket ticket;
    CONF_OK(hd_lane_create(c->runtime, 0, &lane));
    CONF_OK(hd_alloc(lane, bytes, &x));
    for (int i = 0; i < EACH; i++) {
        CONF_OK(hd_range_push(c->runtime, "a step"));
        CONF_OK(conf_fill(lane, c->k, x, 0, words, 1, &ticket));
        CONF_OK(hd_range_pop(c->runtime));
    }
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    hd_free(x);
    CONF_OK(hd_lane_destroy(lane));
    return NULL;
}

static void threads_lose_nothing(void **state)
{
    (void)state;
    for (int sharing = 0; sharing < 2; sharing++) {
        crowd c = {.runtime = conf_open(NULL)};
        ring_users users;
        if (sharing) {
            use_all_rings(&users, c.runtime);
        }
        c.k = conf_builtins(c.runtime);
        CONF_OK(hd_trace_start(c.runtime, in_folder("t"), NULL));
        /* the second time with rings of threads that ended */
        for (int round = 0; round < 2; round++) {
            pthread_t threads[THREADS];
            for (int i = 0; i < THREADS; i++) {
                CONF_EQUAL(pthread_create(&threads[i], NULL, submits, &c), 0);
            }
            for (int i = 0; i < THREADS; i++) {
                pthread_join(threads[i], NULL);
            }
        }
        hd_trace_info info = {.size = sizeof info};
        CONF_OK(hd_trace_stop(c.runtime, &info));
        CONF_EQUAL(info.dropped, 0);
        content all = read_file(file_path);
        uint32_t numbers[2 * THREADS + 1];
        size_t n_numbers = 0, at = 0, launches = 0;
        for (const hdi_record *r; (r = next(&all, HDI_RECORD_SUBMIT, &at)) != NULL;) {
            launches += r->kind == HDI_RECORD_OP_LAUNCH;
            size_t i = 0;
            while (i < n_numbers && numbers[i] != r->thread) {
                i++;
            }
            if (i == n_numbers) {
                CONF_TRUE(n_numbers < 2 * THREADS + 1);
                numbers[n_numbers++] = r->thread;
            }
        }
        CONF_EQUAL(launches, 2 * THREADS * EACH);
        CONF_EQUAL(n_numbers, 2 * THREADS); /* the next thread of a ring gets its own number */
        CONF_EQUAL(count(&all, HDI_RECORD_PUSH), 2 * THREADS * EACH);
        CONF_EQUAL(count(&all, HDI_RECORD_POP), 2 * THREADS * EACH);
        CONF_EQUAL(count(&all, HDI_RECORD_ALLOC), 2 * THREADS);
        CONF_EQUAL(count(&all, HDI_RECORD_FREE), 2 * THREADS);
        free(all.records);
        if (sharing) {
            give_all_rings(&users);
        }
        conf_close(c.runtime);
    }
}

/* A trace may be shorter than the time between two samples. */
static void memory_is_sampled_at_both_ends(void **state)
{
    (void)state;
    const size_t limit = (size_t)64 << 20, mine = (size_t)4 << 20;
    hd_runtime *runtime = conf_open("memory_limit=64M");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL;
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    CONF_OK(hd_alloc(lane, mine, &x));
    CONF_OK(hd_fill(x, 0, 0, mine, NULL));
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    CONF_OK(hd_trace_stop(runtime, NULL));
    content c = read_file(file_path);
    size_t at = 0;
    const hdi_record *begun = next(&c, HDI_RECORD_ALLOC, &at);
    CONF_TRUE(begun != NULL);
    for (int d = 0; d < hd_device_count(runtime); d++) {
        const hdi_record *first = NULL, *last = NULL;
        at = 0;
        for (const hdi_record *r; (r = next(&c, HDI_RECORD_MEMORY, &at)) != NULL;) {
            first = r->device == d && !first ? r : first;
            last = r->device == d ? r : last;
            CONF_EQUAL(r->memory.limit, limit);
            CONF_TRUE(r->memory.in_use <= limit);
        }
        CONF_TRUE(first && last && first != last);
        CONF_TRUE(first->time <= begun->time && first->memory.in_use < mine);
        CONF_TRUE(last->time >= begun->time);
        CONF_TRUE(d != 0 || (last->memory.in_use >= mine && last->memory.held >= mine));
    }
    free(c.records);
    hd_free(x);
    conf_close(runtime);
}

/* The first product opens the library for products, in a call of the program. */
static void opening_a_library_is_a_pause(void **state)
{
    (void)state;
    enum { N = 32 };
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_tensor a, b, c;
    const uint64_t shape[] = {N, N};
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_F32, 2, shape, &a));
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_F32, 2, shape, &b));
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_F32, 2, shape, &c));
    CONF_OK(hd_fill(a.buffer, 0, 0, N * N * 4, NULL));
    CONF_OK(hd_fill(b.buffer, 0, 0, N * N * 4, NULL));
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    CONF_OK(hd_tensor_matmul(lane, &c, &a, &b, 1, 0, NULL));
    CONF_OK(hd_tensor_matmul(lane, &c, &a, &b, 1, 0, NULL));
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    CONF_OK(hd_trace_stop(runtime, NULL));
    content file = read_file(file_path);
    int opened = 0;
    size_t at = 0;
    for (const hdi_record *r; (r = next(&file, HDI_RECORD_PAUSE, &at)) != NULL;) {
        /* pauses with bytes belong to modules */
        opened += r->kind == HDI_RECORD_PAUSE_CODE && r->device == 0 && r->pause.bytes == 0;
    }
    CONF_EQUAL(opened, 1);
    free(file.records);
    conf_close(runtime);
}

static void a_loss_and_a_restart_are_recorded(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    if (!conf_is_process(runtime)) {
        conf_close(runtime);
        skip();
    }
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *x = NULL;
    hd_ticket ticket;
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    CONF_OK(conf_fill(lane, k, x, 0, words, 1, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    kill(wk_pid(runtime, 0), SIGKILL);
    hd_status status = HD_OK;
    while (!status) {
        status = conf_fill(lane, k, x, 0, words, 1, &ticket);
        status = status ? status : hd_wait(ticket, 60 * CONF_SECOND);
    }
    CONF_OK(hd_device_restart(runtime, 0));
    hd_free(x);
    CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(conf_fill(lane, k, x, 0, words, 2, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_OK(hd_trace_stop(runtime, NULL));
    content c = read_file(file_path);
    CONF_EQUAL(count(&c, HDI_RECORD_LOSS), 1);
    CONF_EQUAL(count(&c, HDI_RECORD_RESTART), 1);
    /* the new worker records, too */
    CONF_TRUE(submit_of(&c, ticket) && covering(&c, HDI_RECORD_SPAN, ticket));
    size_t at = 0;
    const hdi_record *loss = next(&c, HDI_RECORD_LOSS, &at);
    CONF_TRUE(loss->texts > 0 && loss->device == 0 && loss->loss.code != 0);
    free(c.records);
    conf_close(runtime);
}

/* The program that is killed: this one, started anew. It writes the last operation's position to
 * `out`. */
static void be_killed(const char *file, int out)
{
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *x = NULL;
    hd_ticket ticket;
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(hd_trace_start(runtime, file, NULL));
    CONF_OK(conf_fill(lane, k, x, 0, words, 1, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_TRUE(write(out, &ticket.sequence, sizeof ticket.sequence) == (ssize_t)sizeof ticket.sequence);
    for (;;) {
        pause();
    }
}

static void the_file_is_good_after_a_kill(void **state)
{
    (void)state;
    char out[16];
    int ends[2];
    CONF_EQUAL(pipe(ends), 0);
    snprintf(out, sizeof out, "%d", ends[1]);
    char *const arguments[] = {"test_trace", (char *)(uintptr_t)in_folder("killed"), out, NULL};
    pid_t child = -1;
    CONF_EQUAL(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    uint64_t sequence;
    CONF_TRUE(read(ends[0], &sequence, sizeof sequence) == (ssize_t)sizeof sequence);
    bool there = false;
    /* within a moment, while nothing else happens; otherwise the watchdog ends the case */
    while (!there) {
        content c = read_file(file_path);
        size_t at = 0;
        for (const hdi_record *r; (r = next(&c, HDI_RECORD_DONE, &at)) != NULL;) {
            there |= r->done.position == sequence;
        }
        free(c.records);
    }
    kill(child, SIGKILL);
    CONF_TRUE(waitpid(child, NULL, 0) == child);
    content c = read_file(file_path);
    CONF_EQUAL(count(&c, HDI_RECORD_END), 0);
    CONF_TRUE(count(&c, HDI_RECORD_SUBMIT) >= 1);
    free(c.records);
    close(ends[0]);
    close(ends[1]);
}

/* Without hd_close everything stays as it is, also in the child of a fork. */
static int leaves;
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return leaves;
}

static void leave_at_once(int signal)
{
    (void)signal;
    exit(0);
}

/* The program that ends without hd_close: this one, started anew. */
static void be_left(const char *file, const char *how)
{
    hd_runtime *runtime = conf_open(NULL);
    leaves = 1;
    CONF_OK(hd_trace_start(runtime, file, NULL));
    for (int i = 0; i < RANGES; i++) {
        CONF_OK(hd_range_push(runtime, "a step"));
        CONF_OK(hd_range_pop(runtime));
    }
    /* the child inherits its parent's trace, but not its writer */
    if (strcmp(how, "child") == 0 && fork() != 0) {
        int status = -1;
        CONF_TRUE(wait(&status) > 0 && status == 0);
    }
    if (strcmp(how, "signal") == 0) {
        CONF_TRUE(signal(SIGUSR1, leave_at_once) != SIG_ERR);
        raise(SIGUSR1);
    }
    exit(0);
}

static void exit_without_close_writes_all(void **state)
{
    (void)state;
    static const char *const ways[] = {"exit", "signal", "child"};
    in_folder("t");
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        char *arguments[] = {(char *)"test_trace", file_path, (char *)ways[i], (char *)"exit", NULL};
        pid_t child;
        int status = -1;
        CONF_EQUAL(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
        CONF_TRUE(waitpid(child, &status, 0) == child && status == 0);
        content c = read_file(file_path);
        CONF_EQUAL(count(&c, HDI_RECORD_PUSH), RANGES);
        CONF_EQUAL(count(&c, HDI_RECORD_POP), RANGES);
        CONF_EQUAL(count(&c, HDI_RECORD_END), 0);
        CONF_TRUE(count(&c, HDI_RECORD_MEMORY) >= 2 * (size_t)c.records[0].device);
        free(c.records);
    }
}

int main(int argc, char **argv)
{
    conf_begin("test_trace");
    if (argc == 3) {
        conf_failure_ends_program = true;
        be_killed(argv[1], atoi(argv[2]));
    }
    if (argc == 4) {
        conf_failure_ends_program = true;
        be_left(argv[1], argv[2]);
    }
    const struct CMUnitTest tests[] = {
        FOLDER_CASE(each_operation_is_there_once),
        FOLDER_CASE(transfers_have_their_way_and_bytes),
        FOLDER_CASE(what_the_driver_did_not_get_is_marked),
        FOLDER_CASE(pinned_memory_is_there_like_others),
        FOLDER_CASE(a_later_label_is_there),
        FOLDER_CASE(names_that_are_alike_in_number_are_two),
        FOLDER_CASE(rungs_are_those_that_were_taken),
        FOLDER_CASE(a_claim_that_no_engine_has_ends_too),
        FOLDER_CASE(bad_calls_are_refused),
        FOLDER_CASE(traces_follow_each_other),
        FOLDER_CASE(a_trace_of_the_option_ends_with_the_runtime),
        FOLDER_CASE(ranges_are_nested),
        FOLDER_CASE(what_has_no_room_in_the_file_is_counted),
        FOLDER_CASE(threads_lose_nothing),
        FOLDER_CASE(memory_is_sampled_at_both_ends),
        FOLDER_CASE(opening_a_library_is_a_pause),
        FOLDER_CASE(a_loss_and_a_restart_are_recorded),
        FOLDER_CASE(the_file_is_good_after_a_kill),
        FOLDER_CASE(exit_without_close_writes_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
