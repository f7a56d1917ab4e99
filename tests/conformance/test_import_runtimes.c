/* test_import_runtimes.c - several runtimes of one process import the same memory of the host.
 *
 * Promise: Memory imported by any runtime stays pinned until that import ends.
 *
 * Other runtimes cannot change that. Random imports, frees and closes of runtimes with overlapping
 * ranges are compared with a model of the pinned pages. Each runtime uses its own device if there
 * are enough, so the contexts in which memory was pinned end at different times. HEDDLE_SEED=N: the
 * seed.
 *
 * Threads: the main one; one case starts a thread for each runtime.
 * Locks: none. With worker processes hd_import_host is refused, and the cases end there.
 */
#include <pthread.h>
#include "foreign.h"

enum { runtimes = 3, pages = 12, page = 4096, imports_most = 6, small = 256 };

typedef struct import {
    hd_buffer *buffer; /* NULL: none */
    size_t low, high;  /* bytes of the area */
    int pin;           /* of the model */
    atomic_int released;
} import;

typedef struct user {
    hd_runtime *runtime; /* NULL: closed */
    hd_lane *lane;
    conf_kernels k;
import imports[imports_most];
} user;

typedef struct pin {
    size_t low, high;
    int users; /* 0: unused */
} pin;

typedef struct scene {
    unsigned char *area;
    conf_random random;
    int devices;
    user users[runtimes];
    pin pins[runtimes * imports_most];
} scene;

static void open_runtime(scene *s, int number)
{
    user *u = &s->users[number];
    u->runtime = conf_open_with("devices=%d", number % s->devices);
    u->lane = conf_default_lane(u->runtime, 0);
    u->k = conf_builtins(u->runtime);
}

/* False: with worker processes Heddle imports no host memory. */
static bool begin(scene *s)
{
    *s = (scene){.random = {conf_number_from("HEDDLE_SEED", 1)}};
    hd_runtime *first = conf_open(NULL);
    s->devices = hd_device_count(first);
    bool imports = !conf_is_process(first);
    if (!imports) {
        hd_buffer *out = NULL;
        CONF_FAILS(hd_import_host(first, s, sizeof *s, NULL, &out), HD_ERROR_UNSUPPORTED);
    } else {
        s->area = aligned_alloc(page, pages * page);
        CONF_TRUE(s->area != NULL);
        memset(s->area, 1, pages * page);
        for (int i = 0; i < runtimes; i++) {
            open_runtime(s, i);
        }
    }
    conf_close(first);
    return imports;
}

static void count(void *context)
{
    atomic_fetch_add((atomic_int *)context, 1);
}

static bool overlap(size_t low, size_t high, size_t other_low, size_t other_high)
{
    return low < other_high && other_low < high;
}

static bool share_pages(size_t low, size_t high, const pin *p)
{
    return overlap(low / page, (high + page - 1) / page, p->low / page, (p->high + page - 1) / page);
}

/* Returns the pin that an import of the bytes uses, which may be a new one. -1: the import is
 * refused. */
static int pin_for(scene *s, size_t low, size_t high)
{
    int empty = -1;
    for (int i = 0; i < runtimes * imports_most; i++) {
        const pin *p = &s->pins[i];
        if (p->users == 0) {
            empty = i;
        } else if (p->low <= low && high <= p->high) {
            return i;
        } else if (share_pages(low, high, p)) {
            return -1;
        }
    }
    s->pins[empty] = (pin){low, high, 0};
    return empty;
}

static void import_some(scene *s, user *u)
{
    import *free_one = NULL;
    size_t low = page * conf_below(&s->random, pages), n = page * (1 + conf_below(&s->random, 5));
    size_t high = low + n < pages * page ? low + n : pages * page;
    if (conf_below(&s->random, 4) == 0) { /* without the first and the last bytes */
        low += small;
        high -= small;
    }
    bool refused = false;
    for (int i = 0; i < imports_most; i++) {
        import *e = &u->imports[i];
        free_one = e->buffer ? free_one : e;
        refused |= e->buffer && overlap(low, high, e->low, e->high);
    }
    if (!free_one) {
        return;
    }
    int p = refused ? -1 : pin_for(s, low, high);
    atomic_store(&free_one->released, 0);
    const hd_import_options options = {.size = sizeof options, .released = count, .context = &free_one->released};
    hd_buffer *b = NULL;
    hd_status status = hd_import_host(u->runtime, s->area + low, high - low, &options, &b);
    CONF_EQUAL(status, p < 0 ? HD_ERROR_ARGUMENT : HD_OK);
    if (p >= 0) {
        s->pins[p].users++;
        free_one->buffer = b;
        free_one->low = low;
        free_one->high = high;
        free_one->pin = p;
    }
}

static void await_release(scene *s, import *e)
{
    while (atomic_load(&e->released) == 0) {
        conf_sleep_ms(0);
    }
    s->pins[e->pin].users--;
    e->buffer = NULL;
}

static import *some_import(scene *s, user *u)
{
    import *e = &u->imports[conf_below(&s->random, imports_most)];
    return e->buffer ? e : NULL;
}

/* A kernel on the runtime's device writes it all. */
static void use(scene *s, user *u, const import *e)
{
    uint32_t value = (uint32_t)conf_next(&s->random);
    uint64_t n = (e->high - e->low) / 4;
    CONF_OK(conf_fill(u->lane, u->k, e->buffer, 0, n, value, NULL));
    CONF_OK(hd_lane_wait(u->lane, 60 * CONF_SECOND));
    const uint32_t *at = (const uint32_t *)(const void *)(s->area + e->low);
    CONF_TRUE(at[0] == value && at[n - 1] == value);
}

static void close_runtime(scene *s, user *u)
{
    conf_close(u->runtime);
    u->runtime = NULL;
    for (int i = 0; i < imports_most; i++) {
        if (u->imports[i].buffer) {
            CONF_EQUAL(atomic_load(&u->imports[i].released), 1);
            await_release(s, &u->imports[i]);
        }
    }
}

/* Asks the driver about each page: it can only pin pages that are not pinned. */
static void compare_pages(scene *s)
{
    int asks = 0;
    while (asks < runtimes && !s->users[asks].runtime) {
        asks++;
    }
    if (asks == runtimes) {
        return;
    }
    foreign f;
    foreign_begin(&f, s->users[asks].runtime);
    foreign_enter(&f, 0);
    for (size_t i = 0; i < pages; i++) {
        bool pinned = false;
        for (int p = 0; p < runtimes * imports_most && !pinned; p++) {
            pinned = s->pins[p].users > 0 && share_pages(i * page, (i + 1) * page, &s->pins[p]);
        }
        int r = f.cuMemHostRegister(s->area + i * page, page, 3);
        if (r == 0) {
            CONF_EQUAL(f.cuMemHostUnregister(s->area + i * page), 0);
        }
        if (pinned == (r == 0)) {
            conf_fail_at(__FILE__, __LINE__, "page %zu is %s, the driver returns %d", i,
                         pinned ? "of an import" : "of no import", r);
        }
    }
    foreign_leave(&f);
    foreign_end(&f);
}

static void end(scene *s)
{
    for (int i = 0; i < runtimes; i++) {
        if (s->users[i].runtime) {
            close_runtime(s, &s->users[i]);
        }
    }
    open_runtime(s, 0);
    compare_pages(s);
    conf_close(s->users[0].runtime);
    free(s->area);
}

static void pages_are_pinned_as_in_the_model(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s)) {
        return;
    }
    int steps = 1500 / CONF_SLOWNESS;
    for (int i = 0; i < steps; i++) {
        int number = (int)conf_below(&s.random, runtimes);
        user *u = &s.users[number];
        if (!u->runtime) {
            open_runtime(&s, number);
        }
        uint64_t what = conf_below(&s.random, 100);
        import *e = some_import(&s, u);
        if (what < 45) {
            import_some(&s, u);
        } else if (what < 75 && e) {
            CONF_OK(hd_free(e->buffer));
            await_release(&s, e);
        } else if (what < 97 && e) {
            use(&s, u, e);
        } else if (what >= 97) {
            close_runtime(&s, u);
        }
        if (what < 20 || what >= 97) {
            compare_pages(&s);
        }
    }
    end(&s);
}

/* The runtime that pinned the memory closes, and its device ends with it. Another runtime still
 * uses the memory. */
static void the_first_one_closes(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s)) {
        return;
    }
    hd_buffer *b = NULL;
    CONF_OK(hd_import_host(s.users[0].runtime, s.area, 4 * page, NULL, &b));
    import *e = &s.users[1].imports[0];
    const hd_import_options options = {.size = sizeof options, .released = count, .context = &e->released};
    CONF_OK(hd_import_host(s.users[1].runtime, s.area + page, 2 * page, &options, &e->buffer));
    e->low = page;
    e->high = 3 * page;
    s.pins[0] = (pin){0, 4 * page, 1};
    conf_close(s.users[0].runtime);
    s.users[0].runtime = NULL;
    compare_pages(&s);
    use(&s, &s.users[1], e);
    CONF_OK(hd_free(e->buffer));
    await_release(&s, e);
    compare_pages(&s);
    end(&s);
}

typedef struct worker {
    scene *s;
    user *u;
    conf_random random;
    pthread_t thread;
} worker;

static void *imports_and_frees(void *argument)
{
    worker *w = argument;
    for (int i = 0; i < 600 / CONF_SLOWNESS; i++) {
        size_t low = page * conf_below(&w->random, pages - 1), n = page * (1 + conf_below(&w->random, 2));
        hd_buffer *b = NULL;
        hd_status status = hd_import_host(w->u->runtime, w->s->area + low, n < pages * page - low ? n : page, NULL, &b);
        if (status == HD_OK) { /* only read: other threads use the same bytes */
            hd_buffer *mine = NULL;
            CONF_OK(hd_alloc(w->u->lane, page, &mine));
            CONF_OK(conf_copy(w->u->lane, w->u->k, mine, 0, b, 0, page / 4, NULL));
            CONF_OK(hd_free(b));
            CONF_OK(hd_lane_wait(w->u->lane, 60 * CONF_SECOND));
            CONF_FILLED(mine, 0, 0x01010101, page);
            CONF_OK(hd_free(mine));
        } else {
            CONF_EQUAL(status, HD_ERROR_ARGUMENT);
        }
    }
    return NULL;
}

static void threads_import_the_same_memory(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s)) {
        return;
    }
    conf_failure_ends_program = true;
    worker all[runtimes];
    for (int i = 0; i < runtimes; i++) {
        all[i] = (worker){.s = &s, .u = &s.users[i], .random = {conf_next(&s.random)}};
        CONF_EQUAL(pthread_create(&all[i].thread, NULL, imports_and_frees, &all[i]), 0);
    }
    for (int i = 0; i < runtimes; i++) {
        pthread_join(all[i].thread, NULL);
    }
    conf_failure_ends_program = false;
    end(&s);
}

int main(void)
{
    conf_begin("test_import_runtimes");
    const struct CMUnitTest tests[] = {
        CONF_CASE(pages_are_pinned_as_in_the_model),
        CONF_CASE(the_first_one_closes),
        CONF_CASE(threads_import_the_same_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
