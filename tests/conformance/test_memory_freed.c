/* test_memory_freed.c - allocations at the limit while claims use memory that was freed: their
 * waits and messages.
 *
 * Promise: An allocation waits memory_timeout once, for no claim of its own thread, and names them.
 *
 * Threads: the main one, one that made a call, and one of the library that calls the program.
 * Locks: none.
 * Always: the only upper bound on a time is ten times the wait that is allowed.
 */
#include <heddle/claim.h>
#include <heddle/unified.h>
#include "pool.h"

enum { TIMEOUT_MS = 1000, TIMES = 10 };
#define LONG "memory_timeout=600000 " /* the watchdog ends a case that waits for this */

static void says(const char *what)
{
    if (strstr(hd_message(), what) == NULL) {
        conf_fail_at(__FILE__, __LINE__, "the message does not contain \"%s\": %s", what, hd_message());
    }
}

static void does_not_say(const char *what)
{
    if (strstr(hd_message(), what) != NULL) {
        conf_fail_at(__FILE__, __LINE__, "the message contains \"%s\": %s", what, hd_message());
    }
}

static hd_status dedicated(hd_runtime *runtime, size_t bytes, const char *label, hd_buffer **out)
{
    const hd_alloc_options options = {.size = sizeof options, .flags = HD_ALLOC_DEDICATED, .label = label};
    return hd_alloc_with(conf_default_lane(runtime, 0), bytes, &options, out);
}

static hd_claim *claim(hd_runtime *runtime, const char *label, const hd_arg *uses, size_t n_uses)
{
    const hd_claim_options options = {.size = sizeof options, .label = label};
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin_with(runtime, uses, n_uses, &options, &c));
    return c;
}

/* ---- nobody else could free anything ---- */

/* Only this thread could end the claim. */
static void who_is_alone_waits_for_no_claim(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=256M memory_limit=100M pinned_limit=64M " LONG);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *held = NULL, *pinned = NULL, *none = NULL;
    CONF_OK(hd_alloc(lane, 64 * POOL_MIB, &held));
    CONF_OK(hd_alloc_host(runtime, 40 * POOL_MIB, &pinned));
    const hd_arg both[] = {hd_inout(held), hd_inout(pinned)};
    for (size_t n_uses = 0; n_uses <= 2; n_uses += 2) {
        hd_claim *c = claim(runtime, "frames", both, n_uses);
        CONF_FAILS(hd_alloc(lane, 64 * POOL_MIB, &none), HD_ERROR_MEMORY);
        says("no other thread uses the library");
        does_not_say("claim"); /* it uses nothing that was freed */
        CONF_FAILS(dedicated(runtime, 64 * POOL_MIB, NULL, &none), HD_ERROR_MEMORY);
        does_not_say("claim");
        does_not_say("others hold");
        CONF_FAILS(hd_alloc_unified(lane, 64 * POOL_MIB, &none), HD_ERROR_MEMORY);
        CONF_FAILS(hd_alloc_host(runtime, 40 * POOL_MIB, &none), HD_ERROR_HOST_MEMORY);
        does_not_say("claim");
        CONF_OK(hd_claim_end(c, HD_OK));
    }
    hd_free(held);
    hd_free(pinned);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

static void a_claim_of_freed_pinned_memory_is_named(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 pinned_limit=64M " LONG);
    hd_buffer *pinned = NULL, *none = NULL;
    CONF_OK(hd_alloc_host(runtime, 40 * POOL_MIB, &pinned));
    const hd_arg use = hd_inout(pinned);
    hd_claim *c = claim(runtime, "camera", &use, 1);
    hd_free(pinned);
    CONF_FAILS(hd_alloc_host(runtime, 50 * POOL_MIB, &none), HD_ERROR_HOST_MEMORY);
    says("no other thread uses the library");
    says("40 MiB were freed, but claim 'camera' of ");
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_alloc_host(runtime, 50 * POOL_MIB, &pinned));
    hd_free(pinned);
    conf_close(runtime);
}

/* ---- random histories of dedicated memory and claims, against a model ---- */

enum { BUFFERS = 12, CLAIMS = 4, LIMIT = 64 };

typedef struct model_buffer {
    hd_buffer *handle;   /* NULL: freed */
    unsigned mib, users; /* mib 0: no memory; users: bit per open claim */
    char label[HD_LABEL_BYTES];
} model_buffer;

typedef struct model {
    hd_runtime *runtime;
    conf_random random;
    model_buffer buffers[BUFFERS];
    hd_claim *claims[CLAIMS];
    int refused, held_back; /* of all seeds */
} model;

static unsigned model_sum(const model *m, bool freed)
{
    unsigned sum = 0;
    for (int i = 0; i < BUFFERS; i++) {
        sum += (m->buffers[i].handle == NULL) == freed ? m->buffers[i].mib : 0;
    }
    return sum;
}

/* The message states the bytes that claims use, one of these claims, and one of the buffers. */
static void model_check_message(model *m)
{
    char text[80];
    unsigned freed = model_sum(m, true), users = 0;
    bool buffer_named = false, claim_named = false;
    says("no other thread uses the library");
    does_not_say("others hold the rest");
    if (freed == 0) {
        does_not_say("were freed");
        return;
    }
    m->held_back++;
    for (int i = 0; i < BUFFERS; i++) {
        const model_buffer *b = &m->buffers[i];
        if (b->mib != 0 && b->handle == NULL) {
            users |= b->users;
            snprintf(text, sizeof text, "; %u MiB '%s' were freed, but ", freed, b->label);
            buffer_named |= strstr(hd_message(), text) != NULL;
        }
    }
    for (int c = 0; c < CLAIMS; c++) {
        snprintf(text, sizeof text, " were freed, but claim 'claim %d' of ", c);
        claim_named |= (users >> c & 1) && strstr(hd_message(), text) != NULL;
    }
    if (!buffer_named || !claim_named) {
        conf_fail_at(__FILE__, __LINE__, "%u MiB were freed, which claims 0x%x use: %s", freed, users, hd_message());
    }
}

static void model_allocate(model *m, model_buffer *b)
{
    unsigned mib = 2 * (1 + (unsigned)conf_below(&m->random, LIMIT / 4));
    snprintf(b->label, sizeof b->label, "buffer %d", (int)(b - m->buffers));
    bool fits = model_sum(m, false) + model_sum(m, true) + mib <= LIMIT;
    hd_status status = dedicated(m->runtime, mib * POOL_MIB, b->label, &b->handle);
    if (fits && status != HD_OK) {
        conf_fail_at(__FILE__, __LINE__, "%u MiB fit beside %u MiB, and %u MiB freed: %s", mib, model_sum(m, false),
                     model_sum(m, true), hd_message());
    }
    if (!fits) {
        CONF_FAILS(status, HD_ERROR_MEMORY);
        model_check_message(m);
        m->refused++;
        return;
    }
    b->mib = mib;
    b->users = 0;
}

static void model_end_claim(model *m, int c)
{
    CONF_OK(hd_claim_end(m->claims[c], HD_OK));
    m->claims[c] = NULL;
    for (int i = 0; i < BUFFERS; i++) {
        model_buffer *b = &m->buffers[i];
        b->users &= ~(1u << c);
        b->mib = b->handle == NULL && b->users == 0 ? 0 : b->mib;
    }
}

static void model_begin_claim(model *m, int c)
{
    hd_arg uses[BUFFERS];
    char label[HD_LABEL_BYTES];
    size_t n = 0;
    for (int i = 0; i < BUFFERS; i++) {
        model_buffer *b = &m->buffers[i];
        if (b->handle != NULL && conf_chance(&m->random, 40)) {
            uses[n++] = hd_in(b->handle);
            b->users |= 1u << c;
        }
    }
    snprintf(label, sizeof label, "claim %d", c);
    m->claims[c] = claim(m->runtime, label, uses, n);
}

static void model_step(model *m)
{
    model_buffer *b = &m->buffers[conf_below(&m->random, BUFFERS)];
    int c = (int)conf_below(&m->random, CLAIMS);
    if (conf_chance(&m->random, 25)) {
        if (m->claims[c]) {
            model_end_claim(m, c);
        } else {
            model_begin_claim(m, c);
        }
    } else if (b->mib == 0) {
        model_allocate(m, b);
    } else if (b->handle != NULL) {
        hd_free(b->handle);
        b->handle = NULL;
        b->mib = b->users ? b->mib : 0;
    }
}

static void run_model(model *m, uint64_t seed)
{
    *m = (model){.random = {seed}, .refused = m->refused, .held_back = m->held_back};
    m->runtime = conf_open_with("host_devices=1 host_memory=256M memory_limit=%dM " LONG, LIMIT);
    for (int i = 0; i < 150; i++) {
        model_step(m);
    }
    for (int c = 0; c < CLAIMS; c++) {
        if (m->claims[c]) {
            model_end_claim(m, c);
        }
    }
    for (int i = 0; i < BUFFERS; i++) {
        hd_free(m->buffers[i].handle);
    }
    conf_close(m->runtime);
}

static void claims_that_hold_freed_memory_are_named(void **state)
{
    (void)state;
    static model m;
    uint64_t first = conf_number_from("HEDDLE_SEED", 1);
    memset(&m, 0, sizeof m);
    for (uint64_t seed = first; seed < first + 8; seed++) {
        run_model(&m, seed);
    }
    CONF_TRUE(m.refused > m.held_back && m.held_back > 0);
}

/* ---- another thread could end the claim ---- */

typedef struct other {
    hd_runtime *runtime;
    pthread_barrier_t barrier;
    hd_claim *claim; /* not NULL: the thread ends it after a while */
    atomic_bool over;
} other;

static void *is_there(void *argument)
{
    other *o = argument;
    conf_default_lane(o->runtime, 0);
    pthread_barrier_wait(&o->barrier);
    if (o->claim) {
        conf_sleep_ms(50);
        CONF_OK(hd_claim_end(o->claim, HD_OK));
    }
    while (!atomic_load(&o->over)) {
        conf_sleep_ms(1);
    }
    return NULL;
}

static pthread_t starts(other *o)
{
    pthread_t thread;
    pthread_barrier_init(&o->barrier, NULL, 2);
    conf_failure_ends_program = true;
    CONF_EQUAL(pthread_create(&thread, NULL, is_there, o), 0);
    pthread_barrier_wait(&o->barrier);
    return thread;
}

static void ends(other *o, pthread_t thread)
{
    atomic_store(&o->over, true);
    pthread_join(thread, NULL);
    conf_failure_ends_program = false;
    pthread_barrier_destroy(&o->barrier);
}

/* `named`: the start of the message's part about freed memory; NULL: there is none. */
static void fails_once(hd_runtime *runtime, const char *named)
{
    const int64_t timeout = TIMEOUT_MS * (CONF_SECOND / 1000);
    hd_buffer *none = NULL;
    for (int kind = 0; kind < 2; kind++) {
        int64_t begin = conf_now();
        CONF_FAILS(kind == 0 ? hd_alloc(conf_default_lane(runtime, 0), 40 * POOL_MIB, &none)
                             : dedicated(runtime, 40 * POOL_MIB, NULL, &none),
                   HD_ERROR_MEMORY);
        int64_t waited = conf_now() - begin;
        CONF_TRUE(waited >= timeout && waited < TIMES * timeout);
        says(" nothing was freed or finished for 1 s (option memory_timeout);");
        does_not_say("others hold");
        if (named) {
            says(named);
        } else {
            does_not_say("claim");
        }
    }
}

static void a_claim_is_waited_for_once(void **state)
{
    (void)state;
    hd_runtime *runtime =
        conf_open_with("host_devices=1 host_memory=256M memory_limit=100M memory_timeout=%d", TIMEOUT_MS);
    other o = {.runtime = runtime};
    hd_buffer *held = NULL, *piece = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 40 * POOL_MIB, &held));
    CONF_OK(dedicated(runtime, 40 * POOL_MIB, "frames", &piece));
    pthread_t thread = starts(&o);
    const hd_arg use = hd_inout(piece);
    hd_claim *of_nothing = claim(runtime, "idle", NULL, 0);
    fails_once(runtime, NULL);
    hd_claim *of_piece = claim(runtime, "display", &use, 1);
    hd_free(piece);
    fails_once(runtime, "40 MiB 'frames' were freed, but claim 'display' of ");
    CONF_OK(hd_claim_end(of_piece, HD_OK));
    CONF_OK(hd_claim_end(of_nothing, HD_OK));
    CONF_OK(dedicated(runtime, 60 * POOL_MIB, NULL, &piece));
    ends(&o, thread);
    hd_free(held);
    hd_free(piece);
    conf_close(runtime);
}

static void who_may_end_the_claim_is_waited_for(void **state)
{
    (void)state;
    for (int pinned = 0; pinned < 2; pinned++) {
        hd_runtime *runtime = conf_open("host_devices=1 host_memory=256M memory_limit=100M pinned_limit=64M " LONG);
        hd_buffer *first = NULL, *second = NULL;
        CONF_OK(pinned ? hd_alloc_host(runtime, 40 * POOL_MIB, &first)
                       : dedicated(runtime, 60 * POOL_MIB, NULL, &first));
        const hd_arg use = hd_inout(first);
        other o = {.runtime = runtime, .claim = claim(runtime, "display", &use, 1)};
        hd_free(first);
        pthread_t thread = starts(&o);
        CONF_OK(pinned ? hd_alloc_host(runtime, 50 * POOL_MIB, &second)
                       : dedicated(runtime, 60 * POOL_MIB, NULL, &second));
        ends(&o, thread);
        hd_free(second);
        conf_close(runtime);
    }
}

static hd_status frees_in_a_call(void *const *pointers, void *context)
{
    (void)pointers;
    conf_sleep_ms(50);
    return hd_free(context);
}

/* A function of the program that the library calls ends without another thread of the program. */
static void a_call_of_the_program_is_waited_for(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=256M memory_limit=100M " LONG);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *first = NULL, *second = NULL;
    CONF_OK(hd_alloc(lane, 60 * POOL_MIB, &first));
    CONF_OK(hd_launch_host(runtime, frees_in_a_call, first, NULL, 0, NULL));
    CONF_OK(hd_alloc(lane, 60 * POOL_MIB, &second));
    hd_free(second);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_memory_freed");
    const struct CMUnitTest tests[] = {
        CONF_CASE(who_is_alone_waits_for_no_claim),         CONF_CASE(a_claim_of_freed_pinned_memory_is_named),
        CONF_CASE(claims_that_hold_freed_memory_are_named), CONF_CASE(a_claim_is_waited_for_once),
        CONF_CASE(who_may_end_the_claim_is_waited_for),     CONF_CASE(a_call_of_the_program_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
