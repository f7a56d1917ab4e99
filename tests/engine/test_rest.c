/* test_rest.c - memory that the program imported is unpinned only at a time when this holds up no
 * work.
 *
 * Promise: Unpinning waits for held work of the process, and for no busy lane that goes on.
 *
 * NVIDIA's driver waits for all work of the process. So a runtime also waits for work of other
 * runtimes, and hd_close leaves what it would have to wait for to a thread.
 *
 * Threads: the main one, and those of the runtime. Locks: none.
 * Always: a stream is held only while the test says so.
 */
#include "support/check.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "conformance/conformance.h"
#include "driver/driver.h"
#include "support/changed_driver.h"

enum { BYTES = 65536 };

static atomic_bool held;
static atomic_int pinned_ranges, unpinned, unpinned_while_held, released;
static atomic_bool refuse_addresses;
static sem_t gate;

static hdcu_result unregister(void *memory)
{
    atomic_fetch_add(&unpinned, 1);
    atomic_fetch_add(&unpinned_while_held, atomic_load(&held));
    return real->cuMemHostUnregister(memory);
}

static hdcu_result pin_pages(void *memory, size_t bytes, unsigned flags)
{
    hdcu_result r = real->cuMemHostRegister(memory, bytes, flags);
    atomic_fetch_add(&pinned_ranges, r == HDCU_SUCCESS);
    return r;
}

static hdcu_result reserve(hdcu_deviceptr *out, size_t bytes, size_t alignment, hdcu_deviceptr at,
                           unsigned long long flags)
{
    return atomic_load(&refuse_addresses) ? HDCU_ERROR_OUT_OF_MEMORY
                                          : real->cuMemAddressReserve(out, bytes, alignment, at, flags);
}

static void change_table(hdi_driver *table)
{
    table->cuMemHostRegister = pin_pages;
    table->cuMemHostUnregister = unregister;
    table->cuMemAddressReserve = reserve;
}

hd_status __wrap_hdi_driver_host(const hdi_driver **out)
{
    return give_changed(out);
}

static void await_gate(void *unused)
{
    (void)unused;
    while (sem_wait(&gate) != 0) {
    }
}

static hd_status hold_stream(void *stream, void *unused)
{
    (void)unused;
    return real->cuLaunchHostFunc(stream, await_gate, NULL) == HDCU_SUCCESS ? HD_OK : HD_ERROR_FAILED;
}

static void note_release(void *unused)
{
    (void)unused;
    atomic_fetch_add(&released, 1);
}

typedef struct scene {
    hd_runtime *runtime;
    hd_lane *lane;
    hd_buffer *buffer;
    void *memory;
} scene;

static scene scene_begin(const char *settings)
{
    scene s = {.runtime = NULL};
    char text[200];
    snprintf(text, sizeof text, "driver=host host_devices=1 close_timeout=1000 %s%s",
             strstr(settings, "placement=") ? "" : "placement=thread ", settings);
    hd_options options = {sizeof options, text};
    assert_ok(hd_open(&options, &s.runtime));
    assert_ok(hd_lane_create(s.runtime, 0, &s.lane));
    assert_ok(hd_alloc(s.lane, BYTES, &s.buffer));
    assert_int_equal(posix_memalign(&s.memory, 4096, BYTES), 0);
    memset(s.memory, 0, BYTES);
    if (!atomic_load(&held)) { /* the first runtime */
        atomic_store(&unpinned, 0);
        atomic_store(&unpinned_while_held, 0);
    }
    atomic_store(&released, 0);
    return s;
}

static void scene_end(scene *s)
{
    hd_close(s->runtime);
    free(s->memory);
}

/* Imports the memory, uses it, and frees it. */
static void import_and_free(const scene *s)
{
    hd_buffer *import;
    hd_import_options options = {.size = sizeof options, .released = note_release};
    assert_ok(hd_import_host(s->runtime, s->memory, BYTES, &options, &import));
    assert_ok(hd_fill(import, 0, conf_bits(1), BYTES, NULL));
    hd_free(import);
}

static void held_work_is_not_waited_for(void **state)
{
    (void)state;
    scene s = scene_begin("");
    hd_arg use = hd_inout(s.buffer);
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    atomic_store(&held, true);
    assert_ok(hd_lane_run_native(s.lane, hold_stream, NULL, &use, 1, NULL));
    import_and_free(&s);
    for (int i = 0; i < 20; i++) { /* longer than the patience for moving lanes */
        conf_sleep_ms(100);
        assert_int_equal(atomic_load(&unpinned_while_held), 0);
    }
    assert_int_equal(atomic_load(&released), 0);
    atomic_store(&held, false);
    assert_int_equal(sem_post(&gate), 0);
    while (atomic_load(&released) == 0) {
        conf_sleep_ms(1);
    }
    assert_int_equal(atomic_load(&unpinned), 1);
    scene_end(&s);
    assert_int_equal(sem_destroy(&gate), 0);
}

/* The device always has work, which goes on. */
static void busy_lanes_are_no_reason_to_keep_it(void **state)
{
    (void)state;
    scene s = scene_begin("");
    import_and_free(&s);
    hd_ticket last[2] = {{0}};
    for (uint64_t i = 0; atomic_load(&released) == 0; i++) {
        assert_ok(hd_fill(s.buffer, 0, conf_bits((float)i), BYTES, &last[i % 2]));
        assert_ok(hd_fill(s.buffer, 0, conf_bits((float)i), BYTES, &last[i % 2]));
        if (i > 0) { /* the other pair of fills is under way */
            assert_ok(hd_wait(last[(i + 1) % 2], HD_FOREVER));
        }
    }
    assert_int_equal(atomic_load(&unpinned), 1);
    scene_end(&s);
}

/* Idle pinned memory of the library itself goes back in the same way. */
static void idle_memory_stays_while_work_is_held(void **state)
{
    (void)state;
    scene s = scene_begin("memory_idle=1");
    hd_arg use = hd_inout(s.buffer);
    hd_buffer *pinned;
    assert_ok(hd_alloc_host(s.runtime, 1 << 20, &pinned));
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    atomic_store(&held, true);
    assert_ok(hd_lane_run_native(s.lane, hold_stream, NULL, &use, 1, NULL));
    hd_free(pinned);
    for (int i = 0; i < 20; i++) {
        conf_sleep_ms(100);
        assert_int_equal(atomic_load(&unpinned_while_held), 0);
    }
    atomic_store(&held, false);
    assert_int_equal(sem_post(&gate), 0);
    while (atomic_load(&unpinned) == 0) {
        conf_sleep_ms(1);
    }
    scene_end(&s);
    assert_int_equal(sem_destroy(&gate), 0);
}

/* At the limit, a new import waits until freed imports are unpinned, and so does an allocation. */
static void room_of_freed_imports_is_waited_for(void **state)
{
    (void)state;
    enum { PART = 1 << 20, PARTS = 40 };
    scene s = scene_begin("pinned_limit=8M memory_timeout=60000");
    unsigned char *memory;
    hd_buffer *buffer;
    assert_int_equal(posix_memalign((void **)&memory, 4096, (size_t)PARTS * PART), 0);
    for (int i = 0; i < PARTS; i++) {
        assert_ok(hd_import_host(s.runtime, memory + (size_t)i * PART, PART, NULL, &buffer));
        hd_free(buffer);
    }
    assert_ok(hd_alloc_host(s.runtime, 6 << 20, &buffer));
    scene_end(&s);
    free(memory);
}

/* Beside held work, hd_memory_trim and allocations at the limit unpin nothing. */
static void nobody_unpins_beside_held_work(void **state)
{
    (void)state;
    scene s = scene_begin("pinned_limit=8M memory_timeout=300");
    hd_arg use = hd_inout(s.buffer);
    hd_buffer *small, *large;
    size_t freed = 1;
    assert_ok(hd_alloc_host(s.runtime, 1 << 20, &small));
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    atomic_store(&held, true);
    assert_ok(hd_lane_run_native(s.lane, hold_stream, NULL, &use, 1, NULL));
    hd_free(small);
    assert_ok(hd_memory_trim(s.runtime, HD_DEVICE_HOST, 0, &freed));
    assert_int_equal(freed, 0);
    assert_status(hd_alloc_host(s.runtime, 8 << 20, &large), HD_ERROR_HOST_MEMORY);
    assert_int_equal(atomic_load(&unpinned_while_held), 0);
    atomic_store(&held, false);
    assert_int_equal(sem_post(&gate), 0);
    assert_ok(hd_lane_wait(s.lane, HD_FOREVER));
    assert_ok(hd_alloc_host(s.runtime, 8 << 20, &large));
    scene_end(&s);
    assert_int_equal(sem_destroy(&gate), 0);
}

/* Looks that are far apart do not show that lanes keep moving. */
static void a_later_look_begins_anew(void **state)
{
    (void)state;
    scene s = scene_begin("");
    hd_arg use = hd_inout(s.buffer);
    hd_buffer *pinned;
    size_t freed;
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    assert_ok(hd_alloc_host(s.runtime, 1 << 20, &pinned));
    hd_free(pinned);
    for (int i = 0; i < 2; i++) { /* the lane finishes something between the two looks */
        atomic_store(&held, true);
        assert_ok(hd_lane_run_native(s.lane, hold_stream, NULL, &use, 1, NULL));
        conf_sleep_ms(i == 0 ? 0 : 2000);
        assert_ok(hd_memory_trim(s.runtime, HD_DEVICE_HOST, 0, &freed));
        assert_int_equal(freed, 0);
        assert_int_equal(atomic_load(&unpinned_while_held), 0);
        atomic_store(&held, false);
        assert_int_equal(sem_post(&gate), 0);
        assert_ok(hd_lane_wait(s.lane, HD_FOREVER));
    }
    scene_end(&s);
    assert_int_equal(sem_destroy(&gate), 0);
}

/* ---- two runtimes ---- */

static scene held_begin(const char *settings)
{
    scene s = scene_begin(settings);
    hd_arg use = hd_inout(s.buffer);
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    atomic_store(&held, true);
    assert_ok(hd_lane_run_native(s.lane, hold_stream, NULL, &use, 1, NULL));
    return s;
}

static void held_end(scene *s)
{
    atomic_store(&held, false);
    assert_int_equal(sem_post(&gate), 0);
    assert_ok(hd_lane_wait(s->lane, HD_FOREVER));
}

/* Both runtimes ended: all memory is unpinned. */
static void all_is_unpinned(int before)
{
    assert_int_equal(atomic_load(&pinned_ranges) - before, atomic_load(&unpinned));
    assert_int_equal(sem_destroy(&gate), 0);
}

static const char *const placements[] = {"placement=thread", "placement=inline"};

/* The other runtime stays open beside held work, and then ends. */
static void a_runtime_closes_beside_held_work(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        int before = atomic_load(&pinned_ranges);
        scene first = held_begin(placements[i]), second = scene_begin(placements[1 - i]);
        hd_module *module;
        hd_buffer *pinned, *import;
        hd_import_options options = {.size = sizeof options, .released = note_release};
        assert_ok(hd_alloc_host(second.runtime, 1 << 20, &pinned));
        assert_ok(hd_import_host(second.runtime, second.memory, BYTES, &options, &import));
        assert_ok(hd_module_get_builtin(second.runtime, &module));
        assert_ok(hd_fill(pinned, 0, 7, 4096, NULL));
        assert_ok(hd_close(second.runtime));
        assert_int_equal(atomic_load(&unpinned_while_held), 0);
        assert_int_equal(atomic_load(&released), 0); /* the import is still pinned */
        held_end(&first);
        while (atomic_load(&released) == 0) {
            assert_ok(hd_lane_wait(first.lane, HD_FOREVER));
            conf_sleep_ms(1);
        }
        free(second.memory);
        scene_end(&first);
        all_is_unpinned(before);
    }
}

/* Without a function `released`, the program learns from hd_close that its memory is still
 * pinned. */
static void a_close_names_memory_that_stays_pinned(void **state)
{
    (void)state;
    int before = atomic_load(&pinned_ranges);
    scene first = held_begin(""), second = scene_begin("");
    hd_buffer *import;
    assert_ok(hd_import_host(second.runtime, second.memory, BYTES, NULL, &import));
    assert_status(hd_close(second.runtime), HD_ERROR_TIMEOUT);
    assert_non_null(strstr(hd_message(), "64 KiB of imported memory stay pinned until work of another runtime"));
    held_end(&first);
    scene_end(&first);
    free(second.memory);
    all_is_unpinned(before);
}

/* The last hd_close returns when the memory of the other runtime is given back, too. */
static void the_last_close_waits_for_the_rest(void **state)
{
    (void)state;
    int before = atomic_load(&pinned_ranges);
    scene first = held_begin(""), second = scene_begin("");
    assert_ok(hd_close(second.runtime));
    held_end(&first);
    scene_end(&first);
    free(second.memory);
    all_is_unpinned(before);
}

static void another_runtime_unpins_nothing_beside_held_work(void **state)
{
    (void)state;
    int before = atomic_load(&pinned_ranges);
    scene first = held_begin(""), second = scene_begin("memory_idle=1");
    hd_buffer *pinned;
    size_t freed = 1;
    assert_ok(hd_alloc_host(second.runtime, 1 << 20, &pinned));
    hd_free(pinned);
    import_and_free(&second);
    assert_ok(hd_memory_trim(second.runtime, HD_DEVICE_HOST, 0, &freed));
    assert_int_equal(freed, 0);
    for (int i = 0; i < 20; i++) {
        conf_sleep_ms(100);
        assert_int_equal(atomic_load(&unpinned_while_held), 0);
    }
    held_end(&first);
    while (atomic_load(&released) == 0) {
        conf_sleep_ms(1);
    }
    scene_end(&second);
    scene_end(&first);
    all_is_unpinned(before);
}

static void a_runtime_that_does_not_open_unpins_nothing_beside_held_work(void **state)
{
    (void)state;
    int before = atomic_load(&pinned_ranges);
    scene first = held_begin("");
    hd_runtime *runtime = NULL;
    hd_options options = {sizeof options, "driver=host placement=thread host_devices=1"};
    atomic_store(&refuse_addresses, true);
    assert_int_not_equal(hd_open(&options, &runtime), HD_OK);
    atomic_store(&refuse_addresses, false);
    assert_int_equal(atomic_load(&unpinned_while_held), 0);
    held_end(&first);
    scene_end(&first);
    all_is_unpinned(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_work_is_not_waited_for),
        cmocka_unit_test(busy_lanes_are_no_reason_to_keep_it),
        cmocka_unit_test(idle_memory_stays_while_work_is_held),
        cmocka_unit_test(room_of_freed_imports_is_waited_for),
        cmocka_unit_test(nobody_unpins_beside_held_work),
        cmocka_unit_test(a_later_look_begins_anew),
        cmocka_unit_test(a_runtime_closes_beside_held_work),
        cmocka_unit_test(a_close_names_memory_that_stays_pinned),
        cmocka_unit_test(the_last_close_waits_for_the_rest),
        cmocka_unit_test(another_runtime_unpins_nothing_beside_held_work),
        cmocka_unit_test(a_runtime_that_does_not_open_unpins_nothing_beside_held_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
