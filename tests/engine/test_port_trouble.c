/* test_port_trouble.c - the local port when the driver fails: each call in turn, failures to undo,
 * and threads that share a port.
 *
 * Promise: A failed port request leaves nothing behind, and the next request works.
 *
 * Threads: the main one, and those of the last case. Locks: none.
 * Always: the port remembers whatever a failed call leaves behind, and the next call works.
 */
#include "port_tools.h"

/* ---- failures ---- */

/* The resources that use_everything got. */
typedef struct uses {
    uint64_t at, there, module;
    int file;
    bool pinned;
} uses;

/* Uses every call once until one fails, and returns its answer. */
static hdi_answer use_everything(const hdi_shm *shm, const hdi_code *code, uses *u)
{
    static char log[HDI_CODE_LOG_BYTES];
    static hdi_kernel_facts k;
    hdi_port *p = ports[0], *other = ports[1];
    hdi_facts facts;
    hdi_global_place place;
    uint64_t value;
    hdi_answer answer = p->calls->facts(p, &facts);
#define NEXT(call)                                                                                                     \
    if (hdi_answered(answer)) {                                                                                        \
        answer = (call);                                                                                               \
    }
    NEXT(p->calls->pin(p, shm->base, shm->bytes, shm->descriptor, &value))
    u->pinned = hdi_answered(answer);
    NEXT(p->calls->reserve(p, 0, 4 * GRANULE, &u->at))
    NEXT(p->calls->map(p, u->at, GRANULE))
    NEXT(p->calls->map(p, u->at + GRANULE, GRANULE))
    NEXT(p->calls->grant(p, 2, u->at, GRANULE))
    NEXT(p->calls->export(p, u->at, GRANULE, &u->file))
    NEXT(other->calls->reserve(other, 0, GRANULE, &u->there))
    NEXT(other->calls->import(other, u->file, u->there, GRANULE))
    NEXT(p->calls->load(p, code, &u->module, log))
    NEXT(p->calls->kernel(p, u->module, "add", 1, true, &k))
    NEXT(p->calls->kernel_shared(p, 1, 1000))
    NEXT(p->calls->global(p, u->module, "total", &place))
    NEXT(p->calls->unmap(p, u->at + GRANULE, GRANULE))
    NEXT(p->calls->memory_free(p, &value))
#undef NEXT
    return answer;
}

/* Gives everything back, once the driver works again. */
static void give_back(const hdi_shm *shm, const uses *u)
{
    hdi_port *p = ports[0], *other = ports[1];
    if (u->module != 0) {
        OK(p->calls->unload(p, u->module));
    }
    if (u->file >= 0) {
        close(u->file);
    }
    hdi_answer answer = p->calls->unpin(p, shm->base, shm->bytes);
    assert_true(hdi_answered(answer) || (!u->pinned && answer.code == HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED));
    if (u->there != 0) {
        OK(other->calls->unreserve(other, u->there, GRANULE));
    }
    if (u->at != 0) {
        OK(p->calls->unreserve(p, u->at, 4 * GRANULE));
    }
}

static void any_call_may_fail(void **unused)
{
    (void)unused;
    begin("");
    hdi_code code = read_image();
    hdi_shm shm;
    assert_ok(hdi_shm_create("test-port", 8192, &shm));
    const uint64_t all[] = {memory_free(0), memory_free(1)};
    for (int for_good = 0; for_good < 2; for_good++) {
        for (long n = 1;; n++) {
            uses u = {.file = -1};
            set_trap(NULL, n, for_good, HDCU_ERROR_ILLEGAL_ADDRESS);
            hdi_answer answer = use_everything(&shm, &code, &u);
            bool hit = trap.failed != NULL;
            set_trap(NULL, 0, false, 0);
            if (for_good) {
                assert_int_equal(real->cuCtxSetCurrent(NULL), 0); /* the port could not do it */
            }
            assert_true(hdi_answered(answer) || (hit && answer.code == HDCU_ERROR_ILLEGAL_ADDRESS));
            assert_true(hdi_answered(answer) || strncmp(answer.call, "cu", 2) == 0);
            give_back(&shm, &u);
            /* the port undoes the rest before it maps anything more */
            for (int i = 0; i < 2; i++) {
                uint64_t at;
                OK(ports[i]->calls->reserve(ports[i], 0, GRANULE, &at));
                OK(ports[i]->calls->map(ports[i], at, GRANULE));
                OK(ports[i]->calls->unreserve(ports[i], at, GRANULE));
                assert_int_equal(memory_free(i), all[i]);
            }
            if (!hit) {
                assert_true(n > 50);
                break;
            }
        }
    }
    hdi_shm_release(&shm);
    free(image);
    end();
}

static void what_cannot_be_undone_is_kept_in_mind(void **unused)
{
    (void)unused;
    begin("");
    hdi_port *p = ports[0];
    uint64_t at, all = memory_free(0);
    OK(p->calls->reserve(p, 0, 2 * GRANULE, &at));
    set_trap("cuMemUnmap", 1, true, HDCU_ERROR_UNKNOWN);
    OK(p->calls->map(p, at, GRANULE));
    assert_answer(p->calls->unmap(p, at, GRANULE), HDCU_ERROR_UNKNOWN, __LINE__);
    int file = -1;
    assert_answer(p->calls->export(p, at, GRANULE, &file), HDCU_ERROR_NOT_MAPPED, __LINE__);
    /* nothing is mapped while the failed mapping remains */
    assert_answer(p->calls->map(p, at + GRANULE, GRANULE), HDCU_ERROR_UNKNOWN, __LINE__);
    assert_int_equal(memory_free(0), all - GRANULE);
    set_trap(NULL, 0, false, 0);
    OK(p->calls->map(p, at, GRANULE));
    assert_int_equal(memory_free(0), all - GRANULE);

    /* repeating the unmap also removes it */
    set_trap("cuMemUnmap", 1, false, HDCU_ERROR_UNKNOWN);
    assert_answer(p->calls->unmap(p, at, GRANULE), HDCU_ERROR_UNKNOWN, __LINE__);
    assert_int_equal(memory_free(0), all - GRANULE);
    OK(p->calls->unmap(p, at, GRANULE));
    assert_int_equal(memory_free(0), all);

    /* but no handle is released twice */
    OK(p->calls->map(p, at, GRANULE));
    set_trap("cuMemRelease", 1, false, HDCU_ERROR_UNKNOWN);
    hdi_answer answer = p->calls->unmap(p, at, GRANULE);
    assert_answer(answer, HDCU_ERROR_UNKNOWN, __LINE__);
    assert_string_equal(answer.call, "cuMemRelease");
    assert_int_equal(memory_free(0), all);

    /* so does giving the range back */
    set_trap("cuMemSetAccess", 1, false, HDCU_ERROR_UNKNOWN);
    assert_answer(p->calls->map(p, at, GRANULE), HDCU_ERROR_UNKNOWN, __LINE__);
    assert_int_equal(memory_free(0), all);
    for (int i = 0; i < 2; i++) {
        set_trap("cuCtxPushCurrent", 2, false, HDCU_ERROR_UNKNOWN);
        OK(p->calls->map(p, at, GRANULE));
        assert_answer(p->calls->unmap(p, at, GRANULE), HDCU_ERROR_UNKNOWN, __LINE__);
        assert_int_equal(memory_free(0), all - GRANULE);
    }
    OK(p->calls->unreserve(p, at, 2 * GRANULE));
    assert_int_equal(memory_free(0), all);

    /* giving back continues after failures and returns the first one */
    OK(p->calls->reserve(p, 0, 3 * GRANULE, &at));
    for (uint64_t i = 0; i < 3; i++) {
        OK(p->calls->map(p, at + i * GRANULE, GRANULE));
    }
    set_trap("cuMemRelease", 2, false, HDCU_ERROR_UNKNOWN);
    answer = p->calls->unreserve(p, at, 3 * GRANULE);
    assert_answer(answer, HDCU_ERROR_UNKNOWN, __LINE__);
    assert_string_equal(answer.call, "cuMemRelease");
    assert_int_equal(memory_free(0), all);
    OK(p->calls->reserve(p, 0, GRANULE, &at));
    OK(p->calls->map(p, at, GRANULE));
    assert_int_equal(memory_free(0), all - GRANULE);
    OK(p->calls->unreserve(p, at, GRANULE));
    assert_int_equal(memory_free(0), all);
    end();
}

/* ---- threads ---- */

static void *map_and_unmap(void *argument)
{
    hdi_port *p = argument;
    intptr_t errors = 0;
    uint64_t at;
    errors += !hdi_answered(p->calls->reserve(p, 0, 4 * GRANULE, &at));
    for (int i = 0; i < 200 && errors == 0; i++) {
        uint64_t there = at + (uint64_t)(i % 4) * GRANULE;
        errors += !hdi_answered(p->calls->map(p, there, GRANULE));
        errors += !hdi_answered(p->calls->grant(p, 1, there, GRANULE));
        words(there)[i] = 1;
        if (i % 5 != 4 || i < 196) {
            errors += !hdi_answered(p->calls->unmap(p, there, GRANULE));
        }
    }
    errors += !hdi_answered(p->calls->unreserve(p, at, 4 * GRANULE));
    return (void *)errors;
}

static void threads_share_a_port(void **unused)
{
    (void)unused;
    begin("");
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, map_and_unmap, ports[0]), 0);
    }
    for (int i = 0; i < 3; i++) {
        void *errors;
        pthread_join(threads[i], &errors);
        assert_null(errors);
    }
    assert_int_equal(memory_free(0), 64 << 20);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(what_cannot_be_undone_is_kept_in_mind),
        cmocka_unit_test(threads_share_a_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
