/* holders.c - which buffers hold memory, in groups by label and call site.
 *
 * Threads: any.
 * Locks: a walk holds the lock of the list of buffers. The lock of the memo is taken before that
 * lock, so that, of several threads that fail at the same time, only one walks. The locks of arenas
 * are taken before the list's lock, too.
 * Blocking: waits for these locks. Allocations of other threads wait during a walk of the list.
 * Always: nothing is allocated under the list's lock. If a table turns out too small, it grows
 * without the lock, and the walk begins again.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/text.h"
#include "base/wait.h"
#include "buffer/buffer.h"
#include "memory/arena.h"
#include "stats/part.h"
#include "stats/report.h"

#define TABLE_FIRST 512
#define LINE_HOLDERS 5
/* one granule: less memory cannot be the reason for a shortage */
#define KEPT_LEAST ((uint64_t)2 << 20)

/* A hash table of groups; a slot with count 0 is free. */
typedef struct table {
    hdi_holders_of what;
    hdi_holder *slots;
    size_t mask, used;
    bool full;
    hdi_arena_kept kept[HDI_DEVICES_MAX]; /* HDI_KEEPERS: by device */
} table;

static size_t holders_hash(const hdi_holder *key)
{
    uint64_t words[HD_LABEL_BYTES / sizeof(uint64_t)];
    memcpy(words, key->label, sizeof words);
    uint64_t h = (uint64_t)(uintptr_t)key->site ^ (uint64_t)(uint32_t)key->device << 56;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        /* the multiplier is 2^64 over the golden ratio */
        h = (h ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return (size_t)h;
}

static bool holders_same_group(const hdi_holder *a, const hdi_holder *b, hdi_holders_of what)
{
    bool by_site = what == HDI_LEAKS || a->label[0] == 0;
    return a->device == b->device && memcmp(a->label, b->label, sizeof a->label) == 0 &&
           (!by_site || a->site == b->site);
}

static bool holders_buffer_counts(const struct hd_buffer *b, hdi_holders_of what)
{
    uint64_t word = hdi_self_get(&b->self);
    if (what == HDI_LEAKS) {
        return !(word & HDI_SELF_DEAD); /* HDI_SELF_DEAD: the program freed a buffer in a hold */
    }
    if (hdi_buffer_is_imported(b) && !hdi_buffer_is_piece(b)) {
        return false; /* the program's own memory */
    }
    return !(word & HDI_SELF_LOST) && (b->owner == HDI_OWNER_HOST || hdi_buffer_of_now(b));
}

static bool holders_add_buffer(void *context, struct hd_buffer *b)
{
    table *t = context;
    if (!holders_buffer_counts(b, t->what)) {
        return true;
    }
    hdi_holder key = {.device = b->owner == HDI_OWNER_HOST ? HD_DEVICE_HOST : b->owner, .site = b->call_site};
    memcpy(key.label, b->label, strnlen(b->label, sizeof key.label - 1));
    hdi_holder hashed = key;
    if (t->what != HDI_LEAKS && key.label[0]) {
        hashed.site = NULL;
    }
    size_t at = holders_hash(&hashed) & t->mask;
    while (t->slots[at].count && !holders_same_group(&t->slots[at], &key, t->what)) {
        at = (at + 1) & t->mask;
    }
    if (t->slots[at].count == 0) {
        if (t->used > t->mask / 4 * 3) {
            t->full = true;
            return false;
        }
        t->used++;
        t->slots[at] = key;
    }
    t->slots[at].bytes += b->bytes;
    t->slots[at].count++;
    if (key.device != HD_DEVICE_HOST) {
        t->slots[at].kept += hdi_arena_kept_by(&t->kept[key.device], b->address, b->bytes);
    }
    return true;
}

static int holders_compare(const void *a, const void *b)
{
    const hdi_holder *x = a, *y = b;
    if (x->device != y->device) {
        return x->device < y->device ? -1 : 1;
    }
    if (x->bytes + x->kept != y->bytes + y->kept) {
        return x->bytes + x->kept > y->bytes + y->kept ? -1 : 1;
    }
    if (x->count != y->count) {
        return x->count > y->count ? -1 : 1;
    }
    int by_label = memcmp(x->label, y->label, sizeof x->label); /* makes the order deterministic */
    return by_label ? by_label : (x->site > y->site) - (x->site < y->site);
}

/* False: no host memory. */
static bool holders_fill_table(hd_runtime *rt, table *t)
{
    for (size_t room = TABLE_FIRST;; room *= 4) {
        t->slots = calloc(room, sizeof *t->slots);
        if (!t->slots) {
            return false;
        }
        t->mask = room - 1;
        t->used = 0;
        t->full = false;
        hdi_buffers_each(rt, holders_add_buffer, t);
        if (!t->full) {
            return true;
        }
        free(t->slots);
    }
}

hd_status hdi_holders_collect(hd_runtime *rt, hdi_holders_of what, hdi_holder **out, size_t *n)
{
    table t = {.what = what};
    for (int i = 0; what == HDI_KEEPERS && i < rt->n_devices; i++) {
        hdi_arena_kept_make(rt->devices[i]->arena, &t.kept[i]);
    }
    bool filled = holders_fill_table(rt, &t);
    for (int i = 0; what == HDI_KEEPERS && i < rt->n_devices; i++) {
        hdi_arena_kept_free_report(&t.kept[i]);
    }
    if (!filled) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the list of holders");
    }
    size_t kept = 0;
    for (size_t i = 0; i <= t.mask; i++) {
        if (t.slots[i].count) {
            t.slots[kept++] = t.slots[i];
        }
    }
    qsort(t.slots, kept, sizeof *t.slots, holders_compare);
    if (kept == 0) {
        free(t.slots);
        t.slots = NULL;
    }
    *out = t.slots;
    *n = kept;
    return HD_OK;
}

/* Writes the name of a group: its label in quotes, or its call site. */
static void holders_name(const hdi_holder *h, char out[HDI_SITE_BYTES])
{
    if (h->label[0]) {
        snprintf(out, HDI_SITE_BYTES, "'%.*s'", (int)sizeof h->label, h->label);
    } else {
        hdi_site_text(h->site, out);
    }
}

/* Appends one entry if it fits as a whole. */
static void holders_append(char *out, size_t room, size_t *length, const char *name, const hdi_holder *h)
{
    char bytes[HDI_AMOUNT_BYTES];
    char entry[HDI_SITE_BYTES + 2 * HDI_AMOUNT_BYTES + 72], kept[HDI_AMOUNT_BYTES + 24] = "";
    if (h->kept >= KEPT_LEAST) {
        snprintf(kept, sizeof kept, " (which keep %s more)", hdi_bytes_text(h->kept, bytes));
    }
    int n = snprintf(entry, sizeof entry, "%s%s %s in %" PRIu64 "%s", *length ? ", " : "", name,
                     hdi_bytes_text(h->bytes, bytes), h->count, kept);
    if (n > 0 && (size_t)n < sizeof entry && (size_t)n < room - *length) {
        memcpy(out + *length, entry, (size_t)n + 1);
        *length += (size_t)n;
    }
}

/* ---- the list for messages: its walks take only a share of the time ---- */

#define MANY_BUFFERS 10000 /* from this many buffers on, a list may be reused */
#define USED_AGAIN 50      /* a list is reused for this multiple of the time to make it */

static void holders_init(hd_runtime *rt)
{
    hdi_mutex_init(&hdi_stats_of(rt)->holders.lock, HDI_RANK_HOLDERS);
    hdi_buffer_of(rt)->on_full = hdi_report_holders;
}

static void holders_release(hd_runtime *rt)
{
    hdi_mutex_destroy(&hdi_stats_of(rt)->holders.lock);
    free(hdi_stats_of(rt)->holders.list);
}

const hdi_lifetime hdi_holders_lifetime = {.init = holders_init, .release = holders_release};

/* Makes the list if the old one must not be reused. Returns its age. The lock is held. Negative: no
 * host memory. */
static int64_t holders_refresh(hd_runtime *rt, hdi_holders_memo *m)
{
    int64_t begin = hdi_clock_ns();
    if (m->buffers >= MANY_BUFFERS && begin - m->made < USED_AGAIN * m->cost) {
        return begin - m->made;
    }
    hdi_holder *list = NULL;
    size_t n = 0;
    if (hdi_holders_collect(rt, HDI_KEEPERS, &list, &n)) {
        return -1;
    }
    free(m->list);
    m->list = list;
    m->n = n;
    m->buffers = 0;
    m->made = hdi_clock_ns();
    m->cost = m->made - begin;
    for (size_t i = 0; i < n; i++) {
        m->buffers += list[i].count;
    }
    return 0;
}

/* Writes the largest groups of a device. */
static void holders_put_groups(const hdi_holders_memo *m, int device, char *out, size_t room)
{
    size_t length = 0;
    uint64_t named = 0, groups = 0;
    hdi_holder others = {0};
    char name[HDI_SITE_BYTES];
    for (size_t i = 0; i < m->n; i++) {
        const hdi_holder *h = &m->list[i];
        if (h->device != device) {
            continue;
        }
        if (named < LINE_HOLDERS) {
            named++;
            holders_name(h, name);
            holders_append(out, room, &length, name, h);
        } else {
            groups++;
            others.bytes += h->bytes;
            others.count += h->count;
            others.kept += h->kept;
        }
    }
    if (groups) {
        snprintf(name, sizeof name, "%" PRIu64 " others", groups);
        holders_append(out, room, &length, name, &others);
    }
    if (length == 0) {
        snprintf(out, room, "no buffer of the program");
    }
}

void hdi_report_holders(hd_runtime *rt, int device, char *out, size_t room)
{
    hdi_holders_memo *m = &hdi_stats_of(rt)->holders;
    hdi_attempt attempt;
    char ago[HDI_AMOUNT_BYTES];
    if (room == 0) {
        return;
    }
    out[0] = 0;
    hdi_attempt_begin(&attempt);
    hdi_mutex_lock(&m->lock);
    int64_t age = holders_refresh(rt, m);
    if (age >= 0) {
        int n = age == 0 ? snprintf(out, room, "; holders: ")
                         : snprintf(out, room, "; holders %s ago: ", hdi_duration_text((uint64_t)age, ago));
        size_t length = n > 0 && (size_t)n < room ? (size_t)n : room - 1;
        holders_put_groups(m, device, out + length, room - length);
    }
    hdi_mutex_unlock(&m->lock);
    hdi_attempt_end(&attempt);
}
