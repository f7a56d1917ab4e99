/* alloc_log.c - sequences of allocations and frees: random ones, many live blocks, and programs
 * recorded in files.
 *
 * Threads: the conductor. Locks: none.
 * Always: a finished log allocates only free slots and frees only live ones, so a replay needs no
 * checks. Generated logs are the same on every machine.
 */
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include "bench/alloc_parts.h"

enum { OPERATIONS_MOST = 1 << 22, LANES_MOST = ALLOC_LANES_MAX, THREADS_MOST = 65536 };

/* A growing log. `free_slots` lists the slots below log->slots that are not live, and `bytes` the
 * sizes of live slots. */
typedef struct builder {
    alloc_log *log;
    size_t room;
    uint32_t *free_slots, n_free, slots_room;
    uint64_t *bytes;
    uint64_t live;
} builder;

static uint64_t bench_next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static bool bench_grow(builder *b)
{
    if (!b->log->ops || b->log->count == b->room) {
        size_t room = b->room ? 2 * b->room : 1024;
        alloc_op *ops = realloc(b->log->ops, room * sizeof(*ops));
        if (!ops) {
            return false;
        }
        b->log->ops = ops;
        b->room = room;
    }
    if (!b->bytes || !b->free_slots || b->log->slots == b->slots_room) {
        uint32_t room = b->slots_room ? 2 * b->slots_room : 1024;
        uint64_t *bytes = realloc(b->bytes, room * sizeof(*bytes));
        b->bytes = bytes ? bytes : b->bytes;
        uint32_t *slots = realloc(b->free_slots, room * sizeof(*slots));
        b->free_slots = slots ? slots : b->free_slots;
        if (!bytes || !slots) {
            return false;
        }
        b->slots_room = room;
    }
    return true;
}

/* False: out of memory. *slot is the block's slot. */
static bool bench_add_allocation(builder *b, uint64_t bytes, uint32_t lane, uint32_t *slot)
{
    if (!bench_grow(b)) {
        return false;
    }
    alloc_log *log = b->log;
    *slot = b->n_free ? b->free_slots[--b->n_free] : log->slots++;
    b->bytes[*slot] = bytes;
    b->live += bytes;
    log->ops[log->count++] = (alloc_op){.bytes = bytes, .slot = *slot, .lane = lane};
    log->peak_live = b->live > log->peak_live ? b->live : log->peak_live;
    log->largest = bytes > log->largest ? bytes : log->largest;
    log->lanes = lane + 1 > log->lanes ? lane + 1 : log->lanes;
    return true;
}

static bool bench_add_free(builder *b, uint32_t slot, uint32_t lane)
{
    if (!bench_grow(b)) {
        return false;
    }
    b->live -= b->bytes[slot];
    b->free_slots[b->n_free++] = slot;
    b->log->ops[b->log->count++] = (alloc_op){.bytes = 0, .slot = slot, .lane = lane};
    b->log->lanes = lane + 1 > b->log->lanes ? lane + 1 : b->log->lanes;
    return true;
}

static bool bench_end_build(builder *b, bool ok, char *error)
{
    free(b->free_slots);
    free(b->bytes);
    if (!ok) {
        bench_alloc_log_release(b->log);
        if (!error[0]) {
            snprintf(error, PLAIN_ERROR, "out of memory for a sequence of allocations");
        }
    }
    return ok;
}

bool bench_alloc_log_random(uint64_t n, uint64_t largest, uint64_t cap, uint64_t seed, alloc_log *out, char *error)
{
    uint32_t *live = malloc(2 * n * sizeof(*live)), n_live = 0;
    builder b = {.log = out};
    uint64_t most = largest < cap ? largest : cap;
    bool ok = live != NULL;
    *out = (alloc_log){.divisor = 1};
    error[0] = 0;
    for (uint64_t i = 0; i < 2 * n && ok; i++) {
        uint64_t bytes = 1 + bench_next_random(&seed) % most;
        bool allocate = bench_next_random(&seed) % 100 < 73 && b.live + bytes <= cap;
        if (allocate || n_live == 0) {
            ok = bench_add_allocation(&b, bytes, 0, &live[n_live++]);
        } else {
            uint32_t which = (uint32_t)(bench_next_random(&seed) % n_live), slot = live[which];
            live[which] = live[--n_live];
            ok = bench_add_free(&b, slot, 0);
        }
    }
    free(live);
    return bench_end_build(&b, ok, error);
}

bool bench_alloc_log_live(uint64_t n, alloc_log *out, char *error)
{
    uint64_t seed = 1;
    uint32_t slot;
    builder b = {.log = out};
    bool ok = true;
    *out = (alloc_log){.divisor = 1};
    error[0] = 0;
    for (uint64_t i = 0; i < n && ok; i++) {
        ok = bench_add_allocation(&b, 256 + bench_next_random(&seed) % (4096 - 256 + 1), 0, &slot);
    }
    for (uint32_t i = 0; i < n && ok; i++) {
        ok = bench_add_free(&b, i, 0);
    }
    return bench_end_build(&b, ok, error);
}

uint64_t bench_alloc_log_peak(const alloc_log *log, size_t count)
{
    uint64_t *bytes = calloc(log->slots + 1, sizeof(*bytes)), live = 0, peak = 0;
    for (size_t i = 0; i < count && bytes; i++) {
        const alloc_op *op = &log->ops[i];
        live += op->bytes - (op->bytes ? 0 : bytes[op->slot]);
        bytes[op->slot] = op->bytes;
        peak = live > peak ? live : peak;
    }
    free(bytes);
    return peak;
}

void bench_alloc_log_fit(alloc_log *log, uint64_t most)
{
    while (log->peak_live > most && log->largest > 1) {
        for (size_t i = 0; i < log->count; i++) {
            log->ops[i].bytes = (log->ops[i].bytes + 1) / 2;
        }
        log->divisor *= 2;
        log->largest = (log->largest + 1) / 2;
        log->peak_live = bench_alloc_log_peak(log, log->count);
    }
}

void bench_alloc_log_release(alloc_log *log)
{
    free(log->ops);
    memset(log, 0, sizeof(*log));
}

/* ---- files ---- */

/* A live block of a file, in a tree by its ID. */
typedef struct known {
    uint64_t id;
    uint32_t slot;
} known;

typedef struct reader {
    const char *path;
    builder b;
    void *tree;
    size_t line;
    char *error;
} reader;

static int bench_compare_known(const void *a, const void *b)
{
    const known *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static bool bench_refuse(reader *r, const char *why)
{
    snprintf(r->error, PLAIN_ERROR, "%.300s:%zu: %s", r->path, r->line, why);
    return false;
}

/* Parses a decimal number of at most `most` after blanks, and moves *at past it. */
static bool bench_take_number(const char **at, uint64_t most, uint64_t *out)
{
    const char *from = *at + strspn(*at, " \t");
    char *end;
    if (from == *at || *from < '0' || *from > '9') {
        return false;
    }
    errno = 0;
    *out = strtoull(from, &end, 10);
    *at = end;
    return errno == 0 && *out <= most;
}

static bool bench_is_end(const char *at)
{
    return at[strspn(at, " \t\r\n")] == 0;
}

static bool bench_read_allocation(reader *r, const char *at)
{
    uint64_t id, bytes, lane;
    if (!bench_take_number(&at, UINT64_MAX, &id) || !bench_take_number(&at, (uint64_t)1 << 46, &bytes) || bytes == 0 ||
        !bench_take_number(&at, LANES_MOST - 1, &lane) || !bench_is_end(at)) {
        return bench_refuse(r, "an allocation is \"a ID BYTES STREAM\", with BYTES from 1 to 2^46 and STREAM below 64");
    }
    known *k = malloc(sizeof(*k));
    const known *const *found = NULL;
    if (k) {
        *k = (known){.id = id};
        found = tsearch(k, &r->tree, bench_compare_known);
    }
    if (!found) {
        free(k);
        return bench_refuse(r, "out of memory");
    }
    if (*found != k) {
        free(k);
        return bench_refuse(r, "this ID is still allocated");
    }
    return bench_add_allocation(&r->b, bytes, (uint32_t)lane, &k->slot) || bench_refuse(r, "out of memory");
}

static bool bench_read_free(reader *r, const char *at)
{
    uint64_t id, lane;
    if (!bench_take_number(&at, UINT64_MAX, &id) || !bench_take_number(&at, LANES_MOST - 1, &lane) ||
        !bench_is_end(at)) {
        return bench_refuse(r, "a free is \"f ID STREAM\", with STREAM below 64");
    }
    known key = {.id = id}, **found = tfind(&key, &r->tree, bench_compare_known);
    if (!found) {
        return bench_refuse(r, "this ID is not allocated");
    }
    known *k = *found;
    tdelete(&key, &r->tree, bench_compare_known);
    bool ok = bench_add_free(&r->b, k->slot, (uint32_t)lane);
    free(k);
    return ok || bench_refuse(r, "out of memory");
}

static bool bench_read_line(reader *r, const char *line)
{
    uint64_t thread;
    const char *at = line + 1;
    if (r->line == 1) {
        bool known_format = strncmp(line, "heddle-log 1", strlen("heddle-log 1")) == 0;
        return (known_format && bench_is_end(line + strlen("heddle-log 1"))) ||
               bench_refuse(r, "the first line is not \"heddle-log 1\"");
    }
    if (r->b.log->count == OPERATIONS_MOST) {
        return bench_refuse(r, "more than 4194304 operations");
    }
    switch (line[0]) {
    case 'a':
        return bench_read_allocation(r, at);
    case 'f':
        return bench_read_free(r, at);
    case 't':
        return (bench_take_number(&at, THREADS_MOST - 1, &thread) && bench_is_end(at)) ||
               bench_refuse(r, "a thread is \"t N\", with N below 65536");
    case '#':
        return true;
    default:
        return bench_is_end(line) || bench_refuse(r, "neither an operation nor a comment");
    }
}

/* The file's name without directories and ending, and without control characters. */
static void bench_name_log(const char *path, alloc_log *out)
{
    const char *slash = strrchr(path, '/');
    snprintf(out->name, sizeof(out->name), "%s", slash ? slash + 1 : path);
    char *dot = strrchr(out->name, '.');
    if (dot && dot != out->name) {
        *dot = 0;
    }
    for (char *c = out->name; *c; c++) {
        *c = *c < ' ' || *c > '~' ? '?' : *c;
    }
}

/* Returns the number after "KEY": in a line of JSON; 0: the line has none. */
static double bench_json_number(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    at = at ? strchr(at + strlen(key), ':') : NULL;
    return at ? strtod(at + 1, NULL) : 0;
}

/* Reads the memory that PyTorch's allocator held during the recording, from lines of JSON with
 * the log's name. */
static void bench_read_recorded(const char *path, alloc_log *out)
{
    const char *slash = strrchr(path, '/');
    int directory = slash ? (int)(slash - path) + 1 : 0;
    char file_name[4096], name[128], *line = NULL;
    size_t room = 0;
    snprintf(file_name, sizeof(file_name), "%.*srecorded.jsonl", directory, path);
    snprintf(name, sizeof(name), "\"program\": \"%s\"", out->name);
    FILE *file = fopen(file_name, "re");
    while (file && getline(&line, &room, file) >= 0) {
        double live = bench_json_number(line, "\"peak_live\""), reserved = bench_json_number(line, "\"peak_reserved\"");
        if (strstr(line, name) && live > 0 && reserved > 0) {
            bool expandable = strstr(line, "\"expandable_segments\": true") != NULL;
            *(expandable ? &out->torch_expandable_ratio : &out->torch_ratio) = reserved / live;
        }
    }
    free(line);
    if (file) {
        fclose(file);
    }
}

bool bench_alloc_log_read(const char *path, alloc_log *out, char *error)
{
    reader r = {.path = path, .b = {.log = out}, .error = error};
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    bool ok = true;
    *out = (alloc_log){.divisor = 1};
    error[0] = 0;
    bench_name_log(path, out);
    FILE *file = fopen(path, "re");
    if (!file) {
        snprintf(error, PLAIN_ERROR, "%.300s cannot be read: %s", path, strerror(errno));
        return false;
    }
    while (ok && (length = getline(&line, &room, file)) >= 0) {
        r.line++;
        ok = strlen(line) == (size_t)length ? bench_read_line(&r, line) : bench_refuse(&r, "not text");
    }
    if (ok && ferror(file)) {
        snprintf(error, PLAIN_ERROR, "%.300s cannot be read: %s", path, strerror(errno));
        ok = false;
    }
    if (ok && out->peak_live == 0) {
        snprintf(error, PLAIN_ERROR, "%.300s: has no allocation", path);
        ok = false;
    }
    fclose(file);
    free(line);
    tdestroy(r.tree, free);
    bench_read_recorded(path, out);
    return bench_end_build(&r.b, ok, error);
}
