/* test_suspects.c - the operations that a loss blames: those that may have been under way, kernels
 * first, through waits. Also the tickets of all unfinished operations.
 *
 * Promise: A loss names exactly the operations that may have been under way.
 * Threads: one. Locks: none.
 *
 * Always: no engine runs, so the cases define exactly how far each lane is.
 */
#include "lost_device.h"

enum { ILLEGAL_ADDRESS = 700, KILLED = HDI_GONE_SIGNAL - 9 };

static void launch(hd_lane *lane, uint16_t kernel)
{
    hdi_lane_push(lane, &(hdi_command){.op = HDI_OP_LAUNCH, .slots = 1, .kernel = kernel});
}

static void copy(hd_lane *lane)
{
    hdi_lane_push(lane, &(hdi_command){.op = HDI_OP_COPY, .slots = 1});
}

static void await(hd_lane *lane, const hd_lane *other, uint64_t position)
{
    hdi_command c = {.op = HDI_OP_WAIT, .slots = 1};
    c.wait.lane = other->global;
    c.wait.position = c.wait.source = position;
    hdi_lane_push(lane, &c);
}

/* Sets the positions up to which the driver got the lane's work, and the engine saw it end. */
static void is_at(hd_lane *lane, uint64_t issued, uint64_t done)
{
    atomic_store(&lane->shared->issued, issued);
    atomic_store(&lane->shared->done, done);
    atomic_store(&lane->device->channel.flags[lane->number].position, (uint32_t)done);
}

/* Checks the failure of a position: the operation that it blames, and words of its message. */
static void told(fixture *f, const hd_lane *of, uint64_t position, const hd_lane *lane, uint64_t ticket,
                 const char *operation, const char *text)
{
    assert_status(status_of(f, of, position), HD_ERROR_DEVICE_LOST);
    hd_error e = {.size = sizeof e};
    hd_last_error(&e);
    if (e.lane != (int)lane->number || e.ticket != ticket || strcmp(e.operation, operation) != 0 ||
        e.device != lane->device->index || strstr(e.message, text) == NULL) {
        fail_msg("position %llu: %s, lane %d, ticket %llu; '%s' wanted in: %s", (unsigned long long)position,
                 e.operation, e.lane, (unsigned long long)e.ticket, text, e.message);
    }
}

static void not_told(const char *text)
{
    if (strstr(hd_message(), text) != NULL) {
        fail_msg("'%s' is in the message: %s", text, hd_message());
    }
}

static void the_only_kernel_is_named_and_no_copy(void **state)
{
    fixture *f = *state;
    hd_lane *a = &f->lanes[0][0], *b = &f->lanes[0][1];
    copy(a);
    launch(b, 3);
    copy(b);
    is_at(a, 1, 0);
    is_at(b, 2, 0);
    hdi_device_lose(&f->devices[0], ILLEGAL_ADDRESS);
    told(f, b, 1, b, 1, "launch", "the only launch under way there: kernel '?' (lane 1, ticket 1)");
    not_told("copy");
    told(f, b, 2, b, 1, "launch", "; this operation came behind it");
    told(f, a, 1, b, 1, "launch", "; this operation was under way, too");
    told(f, a, 9, b, 1, "launch", "; this operation was never started"); /* submitted later */
    /* a refused call is no operation */
    for (int i = 0; i < 2; i++) {
        assert_status(hdi_lane_refuses(&f->lanes[0][i]), HD_ERROR_DEVICE_LOST);
        not_told("this operation");
    }
}

static void what_was_seen_to_end_is_not_named(void **state)
{
    fixture *f = *state;
    hd_lane *a = &f->lanes[0][0], *b = &f->lanes[0][1];
    for (uint16_t i = 0; i < 4; i++) {
        launch(a, i);
        launch(b, (uint16_t)(10 + i));
    }
    is_at(a, 4, 1);
    is_at(b, 4, 4);
    /* set by the device, not yet read by the engine */
    atomic_store(&f->devices[0].channel.flags[0].position, 2);
    hdi_device_lose(&f->devices[0], ILLEGAL_ADDRESS);
    told(f, a, 4, a, 3, "launch", "it is one of the 2 launches under way there: kernel '?' (lane 0, ticket 3), kernel");
    not_told("lane 1");
    assert_ok(status_of(f, a, 1));
    assert_ok(status_of(f, b, 4));
}

static void what_had_not_begun_is_not_named(void **state)
{
    fixture *f = *state;
    hd_lane *a = &f->lanes[0][0];
    for (uint16_t i = 0; i < 5; i++) {
        launch(a, i);
    }
    is_at(a, 4, 0);
    atomic_store(&a->shared->begun, 2); /* the point at this position was not passed */
    hdi_device_lose(&f->devices[0], ILLEGAL_ADDRESS);
    told(f, a, 2, a, 1, "launch", "it is one of the 2 launches");
    not_told("never started");
    told(f, a, 3, a, 1, "launch", "; this operation was never started");
    told(f, a, 5, a, 1, "launch", "; this operation was never started");
}

static void a_wait_leads_to_the_kernel(void **state)
{
    fixture *f = *state;
    hd_lane *a = &f->lanes[0][0], *b = &f->lanes[0][1];
    await(a, b, 2); /* the lane with the lower number waits */
    launch(a, 1);
    launch(b, 2);
    copy(b);
    is_at(a, 2, 0);
    is_at(b, 2, 0);
    hdi_device_lose(&f->devices[0], ILLEGAL_ADDRESS);
    told(f, a, 2, b, 1, "launch", "; this operation waited for it");
    told(f, b, 1, b, 1, "launch", "it is one of the 2 launches");
}

static void lanes_that_wait_in_turn_come_to_an_end(void **state)
{
    fixture *f = *state;
    hd_lane *a = &f->lanes[0][0], *b = &f->lanes[0][1];
    await(a, b, 2); /* no application writes this, but a worker with stray writes may */
    launch(a, 1);
    await(b, a, 2);
    launch(b, 2);
    is_at(a, 2, 0);
    is_at(b, 2, 0);
    hdi_device_lose(&f->devices[0], ILLEGAL_ADDRESS);
    assert_status(status_of(f, a, 2), HD_ERROR_DEVICE_LOST);
    assert_message_has("it is one of the 2 launches");
}

static void more_kernels_than_there_is_room_for_are_counted(void **state)
{
    fixture *f = *state;
    hd_lane *a = &f->lanes[0][0], *b = &f->lanes[0][1];
    for (uint16_t i = 0; i < 20; i++) {
        launch(a, i);
    }
    launch(b, 30);
    launch(b, 30);
    is_at(a, 20, 0);
    is_at(b, 2, 0);
    hdi_device_lose(&f->devices[0], ILLEGAL_ADDRESS);
    told(f, a, 20, a, 1, "launch", "it is one of the 22 launches under way there: kernel '?' (lane 0, ticket 1), ");
    assert_message_has(" more");
    told(f, b, 2, b, 1, "launch",
         "under way there: kernel '?' (lane 1, "); /* its own launch comes first, in any case */
}

static void the_watchdog_knows_which_it_was(void **state)
{
    fixture *f = *state;
    hd_lane *a = &f->lanes[0][0], *b = &f->lanes[0][1];
    launch(a, 1);
    copy(b);
    launch(b, 2);
    is_at(a, 1, 0);
    is_at(b, 2, 0);
    atomic_store(&f->devices[0].channel.engine->overdue, b->number + 1);
    hdi_device_lose(&f->devices[0], HDI_GONE_WATCHDOG);
    told(f, b, 1, b, 1, "copy", "; it is a copy (lane 1, ticket 1)");
    told(f, a, 1, b, 1, "copy", "; it is a copy (lane 1, ticket 1)");
    atomic_store(&f->devices[0].channel.engine->overdue, 0);
}

static void what_came_next_is_told_where_nothing_was_under_way(void **state)
{
    fixture *f = *state;
    hd_lane *a = &f->lanes[0][0], *b = &f->lanes[0][1];
    copy(a);
    launch(b, 1);
    launch(b, 2);
    is_at(a, 1, 1);
    is_at(b, 0, 0);
    hdi_device_lose(&f->devices[0], KILLED);
    told(f, b, 1, b, 1, "launch", "nothing was under way there; next was kernel '?' (lane 1, ticket 1)");
    assert_ok(status_of(f, a, 1));
}

static void an_earlier_loss_is_told_as_what_it_was(void **state)
{
    fixture *f = *state;
    hd_lane *a = &f->lanes[0][0], *b = &f->lanes[0][1];
    launch(a, 1);
    is_at(a, 1, 0);
    hdi_device_lose(&f->devices[0], ILLEGAL_ADDRESS);
    bring_back(&f->devices[0]);
    launch(b, 2);
    is_at(b, 1, 0);
    hdi_device_lose(&f->devices[0], KILLED);
    told(f, a, 1, a, 1, "launch", "ILLEGAL_ADDRESS; under way there: kernel '?' (lane 0, ticket 1)");
    not_told("lane 1");
    told(f, b, 1, b, 1, "launch", "signal 9; under way there: kernel '?' (lane 1, ticket 1)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_only_kernel_is_named_and_no_copy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_seen_to_end_is_not_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_had_not_begun_is_not_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_wait_leads_to_the_kernel, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lanes_that_wait_in_turn_come_to_an_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(more_kernels_than_there_is_room_for_are_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_watchdog_knows_which_it_was, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_came_next_is_told_where_nothing_was_under_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_earlier_loss_is_told_as_what_it_was, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
