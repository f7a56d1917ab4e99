/* test_memory_model.c - random allocations, uses and frees in lanes, threads and devices, against a
 * model of the addresses.
 *
 * Promise: Live blocks never overlap and keep their content, despite late work on freed ones.
 *
 * The model knows the addresses of every block that is not freed, so that an overlap is seen at
 * once. It also knows the content of each, one repeated word.
 *
 * Late work often still uses a freed block: a long kernel is in front of it. If the memory were
 * given out before that work ends, late writes would reach the next owner's content. Or late reads
 * would find the next owner's words.
 *
 * Threads: four at a time, in several generations, and one that trims and reads the statistics.
 *
 * Locks:
 * - the model's lock
 * - one per lane: threads that use the lane share it, and the lane's end takes it exclusively
 * - none for a block: it belongs to the thread that took it from its slot
 *
 * Always: HEDDLE_SEED=N gives the random numbers of each thread, though not their order.
 *
 * Environment:
 * - HEDDLE_MODEL_STEPS=N: steps of each thread (160 in each generation)
 * - HEDDLE_MODEL_SEEDS=N: that many seeds, one after the other (1)
 */
#include "memory_model.h"

/* ---- content ---- */

/* Words of a block that a kernel uses: all of a small block, the beginning of a large one, which
 * takes long enough. */
static size_t kernel_words(const block *b)
{
    return b->bytes / 4 < KERNEL_WORDS ? b->bytes / 4 : KERNEL_WORDS;
}

/* Submits a kernel that writes to the block from a place on. Returns false if the device cannot
 * reach the block. */
static bool kernel_writes(conf_random *r, const block *b, size_t first, uint32_t word, bool late)
{
    lane_slot *slot;
    int device = user_of(r, b);
    hd_lane *lane = borrow_lane(r, device, &slot);
    if (late) {
        delay_lane(r, lane, device);
    }
    bool written = true;
    if (b->bytes >= 4) {
        hd_status status = conf_fill(lane, m.k, b->buffer, first * 4, kernel_words(b), word, NULL);
        written = status == HD_OK;
        if (!written && (status != HD_ERROR_UNREACHABLE || device == b->device)) {
            broken(__LINE__, "a kernel cannot write: %s", hd_message());
        }
    }
    return_lane(slot);
    return written;
}

/* Fills the part of a block that a kernel left out. */
static void fill_rest(const block *b, uint32_t word)
{
    size_t done = kernel_words(b) * 4;
    MODEL_OK(hd_fill(b->buffer, done, word, b->bytes / 4 * 4 - done, NULL));
}

static void program_writes(const block *b, uint32_t word)
{
    uint32_t *words = conf_memory(b->bytes + 4);
    for (size_t i = 0; i <= b->bytes / 4; i++) {
        words[i] = word;
    }
    MODEL_OK(hd_write(b->buffer, 0, words, b->bytes / 4 * 4));
    free(words);
}

static void write_block(conf_random *r, block *b)
{
    uint32_t word = atomic_fetch_add(&m.next_word, 1);
    switch (conf_below(r, b->kind == DEVICE ? 5 : 7)) {
    case 0:
        program_writes(b, word);
        break;
    case 1:
        MODEL_OK(hd_fill(b->buffer, 0, word, b->bytes / 4 * 4, NULL));
        break;
    case 2:
    case 3:
    case 4:
        if (kernel_writes(r, b, 0, word, conf_chance(r, 30))) {
            fill_rest(b, word);
        } else {
            program_writes(b, word);
        }
        break;
    default: {
        uint32_t *words = NULL;
        MODEL_OK(hd_map(b->buffer, HD_WRITE, (void **)&words));
        if ((unsigned char *)words != b->host) {
            broken(__LINE__, "mapped at %p, not %p", (void *)words, (void *)b->host);
        }
        for (size_t i = 0; i < b->bytes / 4; i++) {
            words[i] = word;
        }
        hd_unmap(b->buffer);
        break;
    }
    }
    b->word = word;
}

static void check_word(const block *b, uint32_t got, size_t at, const char *how)
{
    if (got != b->word) {
        broken(__LINE__, "kind %d, device %d, %zu bytes at %llx, %s: word %zu is %08x, not %08x", b->kind, b->device,
               b->bytes, (unsigned long long)b->address, how, at, got, b->word);
    }
}

static void check_block(conf_random *r, const block *b, bool all)
{
    size_t words = b->bytes / 4;
    if (words == 0) {
        return;
    }
    if (b->kind != DEVICE && !all && conf_chance(r, 40)) {
        uint32_t got = 0;
        size_t at = conf_below(r, words);
        if (!hd_get_u32(b->buffer, at, &got)) {
            broken(__LINE__, "hd_get_u32: %s", hd_message());
        }
        check_word(b, got, at, "by element");
        return;
    }
    size_t n = all || words < 4096 ? words : 1 + conf_below(r, 16384);
    n = n > words ? words : n;
    size_t first = conf_below(r, words - n + 1);
    uint32_t *got = conf_memory(n * 4);
    memset(got, 0xee, n * 4);
    MODEL_OK(hd_read(b->buffer, first * 4, got, n * 4));
    for (size_t i = 0; i < n; i++) {
        check_word(b, got[i], first + i, "read");
    }
    free(got);
}

/* dst gets the words of src: by a copy, or by a kernel of a device that reaches both. */
static void copy_block(conf_random *r, block *dst, const block *src, bool late)
{
    size_t words = (dst->bytes < src->bytes ? dst->bytes : src->bytes) / 4;
    if (words != dst->bytes / 4 || words == 0) {
        return;
    }
    int device = user_of(r, src);
    bool reaches = dst->device < 0 || dst->device == device || (m.peers[device] >> dst->device & 1) != 0;
    if (!late && (!reaches || conf_chance(r, 50))) {
        MODEL_OK(hd_copy(dst->buffer, 0, src->buffer, 0, words * 4, NULL));
        dst->word = src->word;
        return;
    }
    lane_slot *slot;
    hd_lane *lane = borrow_lane(r, device, &slot);
    if (late) {
        delay_lane(r, lane, device);
    }
    size_t done = kernel_words(dst);
    hd_status status = conf_copy(lane, m.k, dst->buffer, 0, src->buffer, 0, done, NULL);
    if (status == HD_OK) {
        MODEL_OK(hd_copy(dst->buffer, done * 4, src->buffer, done * 4, (words - done) * 4, NULL));
        dst->word = src->word;
    } else if (status != HD_ERROR_UNREACHABLE) {
        broken(__LINE__, "a kernel cannot copy: %s", hd_message());
    }
    return_lane(slot);
}

/* ---- blocks come and go ---- */

/* Half of the blocks use a few sizes, so that memory of one often fits another. */
static size_t block_size(conf_random *r)
{
    static const size_t often[] = {1000, 1024, 40000, 300000, POOL_MIB, POOL_MIB + 256, 2 * POOL_MIB};
    size_t most = m.budget / 3;
    size_t bytes = often[conf_below(r, sizeof often / sizeof often[0])];
    return conf_chance(r, 50) && bytes <= most ? bytes : pool_size(r, most);
}

static block *make_block(conf_random *r)
{
    block b = {.device = (int)conf_below(r, (uint64_t)m.devices), .bytes = block_size(r)};
    uint64_t kind = conf_below(r, 100);
    b.kind = kind < 80 ? DEVICE : kind < 90 ? UNIFIED : PINNED;
    if (b.kind != DEVICE && b.bytes > POOL_MIB) {
        b.bytes = POOL_MIB; /* pinned memory is slow to get */
    }
    int device = b.device;
    b.device = b.kind == PINNED ? -1 : device;
    if (!reserve(b.device, b.bytes)) {
        return NULL;
    }
    lane_slot *slot;
    hd_lane *lane = borrow_lane(r, device, &slot);
    hd_alloc_options options = {.size = sizeof options, .label = "model"};
    hd_status status;
    if (b.kind == PINNED) {
        status = hd_alloc_host(m.runtime, b.bytes, &b.buffer);
    } else if (b.kind == UNIFIED) {
        status = hd_alloc_unified(lane, b.bytes, &b.buffer);
    } else if (conf_chance(r, 5)) {
        options.flags = HD_ALLOC_DEDICATED;
        status = hd_alloc_with(lane, b.bytes, &options, &b.buffer);
    } else if (conf_chance(r, 80)) {
        status = hd_alloc(lane, b.bytes, &b.buffer);
    } else {
        status = hd_alloc_with(lane, b.bytes, &options, &b.buffer);
    }
    return_lane(slot);
    /* small blocks may occupy all of the few granules */
    if (status == HD_ERROR_MEMORY && b.kind != PINNED) {
        atomic_fetch_add(&m.refused, 1);
        unreserve(b.device, b.bytes);
        return NULL;
    }
    if (status != HD_OK) {
        broken(__LINE__, "kind %d, %zu bytes: %s", b.kind, b.bytes, hd_message());
    }
    b.address = hd_buffer_address(b.buffer);
    if (b.address == 0 || b.address % 256 != 0 || hd_buffer_size(b.buffer) != b.bytes ||
        hd_buffer_device(b.buffer) != b.device) {
        broken(__LINE__, "kind %d: address %llx, size %zu, device %d", b.kind, (unsigned long long)b.address,
               hd_buffer_size(b.buffer), hd_buffer_device(b.buffer));
    }
    if (b.kind != DEVICE) {
        b.host = hd_element(b.buffer, 0, b.bytes, HD_READ);
        if (b.host == NULL) {
            broken(__LINE__, "hd_element: %s", hd_message());
        }
    }
    atomic_fetch_add(&m.allocations, 1);
    b.word = atomic_load(&m.next_word);
    enter_block(&b);
    write_block(r, &b);
    block *made = conf_memory(sizeof *made);
    *made = b;
    return made;
}

static void drop_block(conf_random *r, block *b)
{
    /* late work, in one lane or two; the block is freed before the work begins */
    if (conf_chance(r, 45)) {
        atomic_fetch_add(&m.late, 1);
        for (uint64_t n = 1 + conf_below(r, 2); n > 0; n--) {
            size_t first = conf_below(r, b->bytes / 4 - kernel_words(b) + 1);
            kernel_writes(r, b, first, 0xdead0000u | (b->word & 0xffff), true);
        }
    }
    if (conf_chance(r, 15)) {
        MODEL_OK(hd_fill(b->buffer, 0, 0xbeef0000u | (b->word & 0xffff), b->bytes / 4 * 4, NULL));
    }
    leave_block(b);
    hd_free(b->buffer);
    if (conf_chance(r, 10)) {
        hd_free(b->buffer); /* stale, even if another buffer uses the structure now */
    }
    unreserve(b->device, b->bytes);
    free(b);
}

/* Frees a held block: its memory may not be given out. */
static void hold_block(block *b, held_block *place)
{
    MODEL_OK(hd_hold_create(m.runtime, &place->hold));
    MODEL_OK(hd_hold_add(place->hold, b->buffer));
    hd_free(b->buffer);
    place->b = *b;
    free(b);
}

static void let_go(held_block *place)
{
    leave_block(&place->b);
    hd_hold_destroy(place->hold);
    unreserve(place->b.device, place->b.bytes);
    place->hold = NULL;
}

/* ---- the threads ---- */

static block *take_slot(int at)
{
    block *b = atomic_load(&m.slots[at]);
    while (b != &being_used && !atomic_compare_exchange_weak(&m.slots[at], &b, &being_used)) {
    }
    return b;
}

static void step(pool_thread *t)
{
    conf_random *r = &t->random;
    int at = (int)conf_below(r, SLOTS);
    block *b = take_slot(at), *other = NULL;
    if (b == &being_used) {
        return;
    }
    if (b == NULL) {
        atomic_store(&m.slots[at], make_block(r));
        return;
    }
    uint64_t what = conf_below(r, 100);
    int at_other = (int)conf_below(r, SLOTS);
    if (what >= 12 && what < 32 && at_other != at) {
        other = take_slot(at_other);
    }
    held_block *place = &m.held[t->number % HOLDS];
    if (what < 6) {
        check_block(r, b, conf_chance(r, 30));
    } else if (what < 12) {
        write_block(r, b);
    } else if (what < 32) {
        if (other != NULL && other != &being_used) {
            bool late = what < 22;
            copy_block(r, other, b, late);
            if (late) { /* the reader has not begun: the next owner must not overwrite its source */
                drop_block(r, b);
                b = NULL;
            }
        }
    } else if (what < 36 && t->number < HOLDS && b->kind == DEVICE) {
        if (place->hold != NULL) {
            let_go(place);
        }
        hold_block(b, place);
        b = NULL;
    } else if (what < 96) {
        if (conf_chance(r, 15)) { /* not always: a read waits, and much work must stay under way */
            check_block(r, b, conf_chance(r, 30));
        }
        drop_block(r, b);
        b = NULL;
    } else {
        renew_lane(r);
    }
    if (other != &being_used && other != NULL) {
        atomic_store(&m.slots[at_other], other);
    } else if (other == NULL && what >= 12 && what < 32 && at_other != at) {
        atomic_store(&m.slots[at_other], NULL); /* taken while it was empty */
    }
    atomic_store(&m.slots[at], b);
}

static void *work(void *argument)
{
    pool_thread *t = argument;
    uint64_t steps = conf_number_from("HEDDLE_MODEL_STEPS", CONF_TSAN ? 70 : 160);
    for (uint64_t i = 0; i < steps; i++) {
        step(t);
        for (int d = HD_DEVICE_HOST; d < m.devices; d++) {
            pool_consistent(m.runtime, d, false); /* the equations of hd_memory_stats */
        }
    }
    return NULL;
}

static void *disturb(void *argument)
{
    pool_thread *t = argument;
    while (!atomic_load(&m.stop)) {
        int device = (int)conf_below(&t->random, (uint64_t)m.devices + 1) - 1;
        hd_lane_memory lanes[8];
        size_t count = 0;
        pool_consistent(m.runtime, device, false);
        if (device >= 0) {
            MODEL_OK(hd_memory_get_lanes(m.runtime, device, lanes, 8, &count));
        }
        if (conf_chance(&t->random, 3)) {
            MODEL_OK(hd_memory_trim(m.runtime, device, conf_below(&t->random, 16 * POOL_MIB), NULL));
        }
        conf_sleep_ms(2);
    }
    return NULL;
}

static void finish(void)
{
    conf_random r = {m.seed + 99};
    for (int i = 0; i < SLOTS; i++) {
        block *b = atomic_load(&m.slots[i]);
        if (b != NULL) {
            CONF_TRUE(b != &being_used);
            check_block(&r, b, true);
            drop_block(&r, b);
            atomic_store(&m.slots[i], NULL);
        }
    }
    for (int i = 0; i < HOLDS; i++) {
        if (m.held[i].hold != NULL) {
            let_go(&m.held[i]);
        }
    }
    for (int d = 0; d < m.devices; d++) {
        conf_slow_free(&m.slow[d]);
        CONF_EQUAL(m.spaces[d].count, 0);
        CONF_EQUAL(m.live[d], 0);
        for (int l = 0; l < LANES; l++) {
            MODEL_OK(hd_lane_wait(m.lanes[d][l].lane, POOL_WAIT));
            hd_lane_destroy(m.lanes[d][l].lane);
            pthread_rwlock_destroy(&m.lanes[d][l].lock);
        }
    }
    for (int d = 0; d < m.devices; d++) {
        pool_gives_all_back(m.runtime, d);
    }
    CONF_EQUAL(pool_stats(m.runtime, HD_DEVICE_HOST).live_count, 0);
    pool_consistent(m.runtime, HD_DEVICE_HOST, true);
    pthread_mutex_destroy(&m.lock);
}

/* `limit`: MiB of each device; the model keeps at most two fifths of it alive. */
static void run_seed(const char *settings, size_t limit, uint64_t seed)
{
    memset(&m, 0, sizeof m);
    m.settings = settings;
    m.seed = seed;
    m.runtime = conf_open_with("host_devices=%d host_memory=256M memory_limit=%zuM memory_timeout=50 %s", (int)DEVICES,
                               limit, settings);
    int count = hd_device_count(m.runtime);
    m.devices = count < DEVICES ? count : DEVICES;
    m.k = conf_builtins(m.runtime);
    m.budget = limit * POOL_MIB * 2 / 5;
    atomic_store(&m.next_word, 0x1000);
    pthread_mutex_init(&m.lock, NULL);
    for (int d = 0; d < m.devices; d++) {
        hd_device_info info = {.size = sizeof info};
        CONF_OK(hd_device_get_info(m.runtime, d, &info));
        m.peers[d] = info.peers;
        conf_slow_make(&m.slow[d], m.runtime, d);
        m.slow[d].n /= 8; /* shorter pieces */
        m.slow[d].ms /= 8;
        for (int l = 0; l < LANES; l++) {
            pthread_rwlock_init(&m.lanes[d][l].lock, NULL);
            CONF_OK(hd_lane_create(m.runtime, d, &m.lanes[d][l].lane));
        }
    }
    pool_thread disturber, threads[THREADS];
    pool_start(&disturber, 1, m.runtime, seed + 7, disturb, NULL);
    for (uint64_t g = 0; g < GENERATIONS; g++) {
        pool_start(threads, THREADS, m.runtime, seed * GENERATIONS + g, work, NULL);
        pool_join(threads, THREADS);
        conf_failure_ends_program = true; /* one thread still runs */
    }
    atomic_store(&m.stop, true);
    pool_join(&disturber, 1);
    hd_memory_stats s = pool_stats(m.runtime, 0);
    fprintf(stderr,
            "  %s, limit %zu MiB, seed %llu: %u allocations, %u refused, %u freed with late work. Device 0: %llu from "
            "magazines, %llu same lane, %llu finished, %llu waited for, %llu fresh, %llu KiB moved\n",
            settings, limit, (unsigned long long)seed, atomic_load(&m.allocations), atomic_load(&m.refused),
            atomic_load(&m.late), (unsigned long long)s.from_magazine, (unsigned long long)s.from_same_lane,
            (unsigned long long)s.from_finished, (unsigned long long)s.from_waited, (unsigned long long)s.from_fresh,
            (unsigned long long)s.moved_bytes >> 10);
    CONF_TRUE(atomic_load(&m.refused) <= atomic_load(&m.allocations) / 10);
    finish();
    conf_close(m.runtime);
}

static void run(const char *settings, size_t limit)
{
    uint64_t seed = conf_number_from("HEDDLE_SEED", 1), seeds = conf_number_from("HEDDLE_MODEL_SEEDS", 1);
    for (uint64_t i = 0; i < seeds; i++) {
        conf_watch(settings, 120);
        run_seed(settings, limit, seed + i);
    }
}

static void with_peers(void **state)
{
    (void)state;
    run("host_peers=all", 40);
}

static void without_peers(void **state)
{
    (void)state;
    run("host_peers=none lane_slots=128", 16);
}

static void in_a_perturbed_schedule(void **state)
{
    (void)state;
    char settings[64];
    snprintf(settings, sizeof settings, "host_peers=ring host_schedule=%llu",
             (unsigned long long)conf_number_from("HEDDLE_SEED", 1) * 4711);
    run(settings, 16);
}

/* Growth and moves take long, so that other threads come meanwhile. */
static void with_a_slow_driver(void **state)
{
    (void)state;
    run("host_peers=all memory_idle=1 delay=cuMemSetAccess:1+=300", 40);
}

/* A limit so small that memory moves between sizes and lanes all the time. */
static void under_a_small_limit(void **state)
{
    (void)state;
    run("host_peers=all", 16);
}

static void with_guards(void **state)
{
    (void)state;
    run("host_peers=all memory_debug=on", 40);
}

int main(void)
{
    conf_begin("test_memory_model");
    const struct CMUnitTest tests[] = {
        CONF_CASE(with_peers),         CONF_CASE(without_peers),       CONF_CASE(in_a_perturbed_schedule),
        CONF_CASE(with_a_slow_driver), CONF_CASE(under_a_small_limit), CONF_CASE(with_guards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
