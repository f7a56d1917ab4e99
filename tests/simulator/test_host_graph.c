/* test_host_graph.c - stream capture and graphs of the host provider: fork and join, replay, order,
 * misuse.
 *
 * Promise: Captured graphs of host devices run their nodes in the captured order.
 * Threads: the main one, another one in two cases, and the host provider's own.
 */
#include "host_support.h"
#include <pthread.h>

static hdcu_stream a, b, c;
static hdcu_event fork_event, join_event;
static hdcu_deviceptr p;
static hdcu_module module;
static hdcu_function add;

static void begin_test(const char *settings)
{
    open_host(settings);
    use_device(0);
    OK(d->cuStreamCreate(&a, HDCU_STREAM_NON_BLOCKING));
    OK(d->cuStreamCreate(&b, HDCU_STREAM_NON_BLOCKING));
    OK(d->cuStreamCreate(&c, HDCU_STREAM_NON_BLOCKING));
    OK(d->cuEventCreate(&fork_event, HDCU_EVENT_DISABLE_TIMING));
    OK(d->cuEventCreate(&join_event, HDCU_EVENT_DISABLE_TIMING));
    p = map_new(0, GRANULE);
    OK(d->cuMemsetD8Async(p, 0, GRANULE, NULL));
    OK(d->cuCtxSynchronize());
    module = load_kernels();
    add = kernel_of(module, "add");
}

static void end_test(void)
{
    leave_device(0); /* frees streams, events, memory and graphs */
    hdi_providers_close_driver(d);
}

static uint32_t word_at(size_t index)
{
    uint32_t word = 0;
    OK(d->cuMemcpyDtoH(&word, p + 4 * index, 4));
    return word;
}

static int capture_status(hdcu_stream s)
{
    int status = -1;
    OK(d->cuStreamIsCapturing(s, &status));
    return status;
}

static void captured_work_runs_at_each_launch(void **state)
{
    (void)state;
    begin_test("host_devices=1 host_memory=16M");
    hdcu_graph graph;
    hdcu_graphexec exec;
    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    assert_int_equal(capture_status(a), HDCU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_int_equal(capture_status(b), HDCU_STREAM_CAPTURE_STATUS_NONE);
    OK(launch_add(add, a, p, 1, 8));
    OK(launch_add(add, a, p, 10, 8));
    OK(d->cuMemcpyDtoDAsync(p + 1024, p, 32, a));
    OK(d->cuStreamEndCapture(a, &graph));
    assert_int_equal(capture_status(a), HDCU_STREAM_CAPTURE_STATUS_NONE);
    assert_int_equal(word_at(0), 0); /* capturing runs nothing */
    OK(d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(d->cuGraphDestroy(graph));
    for (int i = 0; i < 10; i++) {
        /* launches run one after the other, in any stream */
        OK(d->cuGraphLaunch(exec, i % 2 ? a : b));
    }
    OK(d->cuModuleUnload(module)); /* the graph keeps it */
    OK(d->cuGraphExecDestroy(exec));
    OK(d->cuCtxSynchronize());
    assert_int_equal(word_at(7), 110);
    assert_int_equal(word_at(256 + 7), 110);
    assert_int_equal(d->cuGraphLaunch(exec, a), HDCU_ERROR_INVALID_VALUE);
    end_test();
}

static int destroyed;

static void count_destroyed(void *context)
{
    *(int *)context += 1;
}

/* Captures an operation into a graph that retains an object. */
static hdcu_graph capture_with_object(void)
{
    int status;
    unsigned long long id = 0, again = 0;
    hdcu_graph named = NULL, graph = NULL;
    hdcu_userobject object;
    OK(d->cuStreamGetCaptureInfo(a, &status, &id, NULL, NULL, NULL));
    assert_int_equal(status, HDCU_STREAM_CAPTURE_STATUS_NONE);
    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(d->cuStreamGetCaptureInfo(a, &status, &id, &named, NULL, NULL));
    assert_int_equal(status, HDCU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(d->cuStreamGetCaptureInfo(a, &status, &again, NULL, NULL, NULL));
    assert_true(id == again && id != 0);
    OK(d->cuUserObjectCreate(&object, &destroyed, count_destroyed, 1, HDCU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(d->cuGraphRetainUserObject(named, object, 1, HDCU_GRAPH_USER_OBJECT_MOVE));
    OK(launch_add(add, a, p, 1, 8));
    OK(d->cuStreamEndCapture(a, &graph));
    assert_ptr_equal(graph, named);
    return graph;
}

static void objects_live_as_long_as_executables(void **state)
{
    (void)state;
    begin_test("host_devices=1 host_memory=16M");
    destroyed = 0;
    hdcu_graph graph = capture_with_object();
    hdcu_graphexec exec;
    OK(d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(d->cuGraphDestroy(graph));
    OK(d->cuGraphLaunch(exec, b));
    assert_int_equal(destroyed, 0);
    OK(d->cuGraphExecDestroy(exec));
    OK(d->cuStreamSynchronize(b));
    OK(d->cuCtxSynchronize());
    assert_int_equal(destroyed, 1);
    OK(d->cuGraphDestroy(capture_with_object()));
    assert_int_equal(destroyed, 2);
    end_test();
}

static void a_spoilt_capture_ends_its_objects(void **state)
{
    (void)state;
    begin_test("host_devices=1 host_memory=16M");
    int status;
    hdcu_graph graph = NULL;
    hdcu_userobject object;
    destroyed = 0;
    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(d->cuStreamGetCaptureInfo(a, &status, NULL, &graph, NULL, NULL));
    OK(d->cuUserObjectCreate(&object, &destroyed, count_destroyed, 2, HDCU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    assert_int_equal(d->cuGraphRetainUserObject(graph, object, 3, HDCU_GRAPH_USER_OBJECT_MOVE),
                     HDCU_ERROR_INVALID_VALUE);
    OK(d->cuGraphRetainUserObject(graph, object, 2, HDCU_GRAPH_USER_OBJECT_MOVE));
    assert_int_equal(d->cuEventQuery(fork_event), HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(d->cuStreamGetCaptureInfo(a, &status, NULL, NULL, NULL, NULL));
    assert_int_equal(status, HDCU_STREAM_CAPTURE_STATUS_INVALIDATED);
    assert_int_equal(d->cuStreamEndCapture(a, &graph), HDCU_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(destroyed, 1);
    end_test();
}

static void a_stream_under_capture_has_no_number(void **state)
{
    (void)state;
    begin_test("host_devices=1 host_memory=16M");
    unsigned long long id = 0;
    hdcu_graph graph = NULL;
    OK(d->cuStreamGetId(a, &id));
    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(d->cuStreamGetId(a, &id), HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(d->cuStreamEndCapture(a, &graph), HDCU_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(d->cuStreamGetId(a, &id));
    end_test();
}

static void forks_join_in_any_schedule(void **state)
{
    (void)state;
    for (int seed = 0; seed < 6; seed++) {
        char settings[80];
        snprintf(settings, sizeof settings, "host_devices=1 host_memory=16M host_schedule=%d", seed);
        begin_test(settings);
        hdcu_graph graph;
        hdcu_graphexec exec;
        OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(d->cuMemsetD32Async(p, 3, 1, a));
        OK(d->cuEventRecord(fork_event, a));
        OK(d->cuStreamWaitEvent(b, fork_event, 0));
        assert_int_equal(capture_status(b), HDCU_STREAM_CAPTURE_STATUS_ACTIVE);
        OK(d->cuMemcpyDtoDAsync(p + 4, p, 4, b));
        OK(d->cuEventRecord(join_event, b));
        OK(d->cuMemcpyDtoDAsync(p + 8, p, 4, a));
        OK(d->cuStreamWaitEvent(a, join_event, 0));
        OK(d->cuMemcpyDtoDAsync(p + 16, p + 4, 8, a)); /* depends on both branches */
        OK(d->cuStreamEndCapture(a, &graph));
        assert_int_equal(capture_status(b), HDCU_STREAM_CAPTURE_STATUS_NONE);
        OK(d->cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(d->cuGraphLaunch(exec, c));
        OK(d->cuStreamSynchronize(c));
        assert_int_equal(word_at(4), 3);
        assert_int_equal(word_at(5), 3);
        assert_int_equal(d->cuEventQuery(join_event), HDCU_ERROR_CAPTURED_EVENT);
        OK(d->cuGraphExecDestroy(exec));
        OK(d->cuGraphDestroy(graph));
        end_test();
    }
}

static void graphs_can_be_captured_in_graphs(void **state)
{
    (void)state;
    begin_test("host_devices=1 host_memory=16M");
    hdcu_graph inner, outer;
    hdcu_graphexec inner_exec, outer_exec;
    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    OK(launch_add(add, a, p, 2, 1));
    OK(d->cuStreamEndCapture(a, &inner));
    OK(d->cuGraphInstantiateWithFlags(&inner_exec, inner, 0));
    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    OK(d->cuGraphLaunch(inner_exec, a));
    OK(d->cuGraphLaunch(inner_exec, a));
    OK(d->cuStreamEndCapture(a, &outer));
    OK(d->cuGraphInstantiateWithFlags(&outer_exec, outer, 0));
    OK(d->cuGraphExecDestroy(inner_exec));
    OK(d->cuGraphLaunch(outer_exec, b));
    OK(d->cuStreamSynchronize(b));
    assert_int_equal(word_at(0), 4);
    end_test();
}

static void expect_invalid_end(hdcu_stream s)
{
    hdcu_graph graph = (hdcu_graph)1;
    assert_int_equal(capture_status(s), HDCU_STREAM_CAPTURE_STATUS_INVALIDATED);
    assert_int_equal(launch_add(add, s, p, 1, 1), HDCU_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(d->cuStreamEndCapture(s, &graph), HDCU_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(graph);
    assert_int_equal(capture_status(s), HDCU_STREAM_CAPTURE_STATUS_NONE);
}

static void *end_from_another_thread(void *data)
{
    hdcu_graph graph;
    *(hdcu_result *)data = d->cuStreamEndCapture(a, &graph);
    return NULL;
}

typedef struct asked {
    int thread_mode;
    hdcu_result result;
} asked;

/* Queries a stream outside the capture from another thread. */
static void *look_from_another_thread(void *data)
{
    asked *a_ = data;
    int mode = a_->thread_mode;
    if (d->cuThreadExchangeStreamCaptureMode(&mode) != HDCU_SUCCESS || mode != HDCU_STREAM_CAPTURE_MODE_GLOBAL) {
        a_->result = HDCU_ERROR_UNKNOWN; /* every thread starts in that mode */
        return NULL;
    }
    a_->result = d->cuStreamQuery(b);
    return NULL;
}

static void threads_say_what_they_mind(void **state)
{
    (void)state;
    begin_test("host_devices=1 host_memory=16M");
    int mode = 3;
    assert_int_equal(d->cuThreadExchangeStreamCaptureMode(&mode), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuThreadExchangeStreamCaptureMode(NULL), HDCU_ERROR_INVALID_VALUE);
    for (int capture = HDCU_STREAM_CAPTURE_MODE_GLOBAL; capture <= HDCU_STREAM_CAPTURE_MODE_RELAXED; capture++) {
        for (int own = 0; own < 2; own++) {
            for (mode = HDCU_STREAM_CAPTURE_MODE_GLOBAL; mode <= HDCU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
                bool refused =
                    mode != HDCU_STREAM_CAPTURE_MODE_RELAXED &&
                    (own ? capture != HDCU_STREAM_CAPTURE_MODE_RELAXED
                         : capture == HDCU_STREAM_CAPTURE_MODE_GLOBAL && mode == HDCU_STREAM_CAPTURE_MODE_GLOBAL);
                hdcu_graph graph;
                asked there = {.thread_mode = mode};
                OK(d->cuStreamBeginCapture(a, capture));
                if (own) {
                    int before = mode;
                    OK(d->cuThreadExchangeStreamCaptureMode(&before));
                    there.result = d->cuStreamQuery(b);
                    OK(d->cuThreadExchangeStreamCaptureMode(&before));
                } else {
                    pthread_t thread;
                    assert_int_equal(pthread_create(&thread, NULL, look_from_another_thread, &there), 0);
                    pthread_join(thread, NULL);
                }
                assert_int_equal(there.result, refused ? HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED : HDCU_SUCCESS);
                assert_int_equal(d->cuStreamEndCapture(a, &graph),
                                 refused ? HDCU_ERROR_STREAM_CAPTURE_INVALIDATED : HDCU_SUCCESS);
                if (!refused) {
                    OK(d->cuGraphDestroy(graph));
                }
            }
        }
    }
    end_test();
}

static void misuse_is_told(void **state)
{
    (void)state;
    begin_test("host_devices=1 host_memory=16M");
    hdcu_graph graph;
    hdcu_deviceptr q;
    hdcu_stream blocking;
    hdcu_event outside;

    assert_int_equal(d->cuStreamBeginCapture(NULL, 0), HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(d->cuStreamBeginCapture(a, 17), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuStreamEndCapture(a, &graph), HDCU_ERROR_ILLEGAL_STATE);

    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(d->cuStreamBeginCapture(a, 0), HDCU_ERROR_ILLEGAL_STATE);
    assert_int_equal(d->cuStreamSynchronize(a), HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalid_end(a);

    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(d->cuMemAlloc(&q, 100), HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalid_end(a);

    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    OK(d->cuMemAlloc(&q, 100));
    OK(d->cuMemFree(q));
    assert_int_equal(d->cuCtxSynchronize(), HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalid_end(a);

    /* an event from outside the capture */
    OK(d->cuEventCreate(&outside, 0));
    OK(d->cuEventRecord(outside, b));
    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(d->cuStreamWaitEvent(a, outside, 0), HDCU_ERROR_STREAM_CAPTURE_ISOLATION);
    expect_invalid_end(a);

    /* a branch that never joins */
    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    OK(d->cuEventRecord(fork_event, a));
    OK(d->cuStreamWaitEvent(b, fork_event, 0));
    OK(launch_add(add, b, p, 1, 1));
    assert_int_equal(d->cuStreamEndCapture(a, &graph), HDCU_ERROR_STREAM_CAPTURE_UNJOINED);

    /* ending in the wrong stream, and on the wrong thread */
    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(d->cuEventRecord(fork_event, a));
    OK(d->cuStreamWaitEvent(b, fork_event, 0));
    pthread_t thread;
    hdcu_result result;
    assert_int_equal(pthread_create(&thread, NULL, end_from_another_thread, &result), 0);
    pthread_join(thread, NULL);
    assert_int_equal(result, HDCU_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    assert_int_equal(d->cuStreamEndCapture(b, &graph), HDCU_ERROR_STREAM_CAPTURE_UNMATCHED);
    expect_invalid_end(a);

    /* two captures cannot be merged */
    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    OK(d->cuStreamBeginCapture(b, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    OK(d->cuEventRecord(fork_event, a));
    assert_int_equal(d->cuStreamWaitEvent(b, fork_event, 0), HDCU_ERROR_STREAM_CAPTURE_MERGE);
    expect_invalid_end(a);
    expect_invalid_end(b);
    assert_int_equal(d->cuStreamWaitEvent(c, fork_event, 0), HDCU_ERROR_CAPTURED_EVENT);

    /* the NULL stream would wait for a capturing one */
    OK(d->cuStreamCreate(&blocking, 0));
    OK(d->cuStreamBeginCapture(blocking, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(launch_add(add, NULL, p, 1, 1), HDCU_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_invalid_end(blocking);

    /* destroying streams during their capture */
    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    OK(launch_add(add, a, p, 1, 1));
    OK(d->cuEventRecord(fork_event, a));
    OK(d->cuStreamWaitEvent(b, fork_event, 0));
    OK(d->cuStreamDestroy(b));
    expect_invalid_end(a);
    OK(d->cuStreamBeginCapture(a, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    OK(launch_add(add, a, p, 1, 1));
    OK(d->cuStreamDestroy(a));
    assert_int_equal(word_at(0), 0);
    end_test();
}

static hdcu_result set(hdcu_graphexec exec, hdcu_graphnode node, hdcu_deviceptr at, uint32_t value)
{
    uint32_t n = 8;
    void *parameters[] = {&at, &value, &n};
    const hdcu_kernel_node_params params = {add, 1, 1, 1, 8, 1, 1, 0, parameters, NULL, NULL, NULL};
    return d->cuGraphExecKernelNodeSetParams(exec, node, &params);
}

/* Nodes were added one by one, in a line. Set parameters count from the next launch on, and only in
 * this executable. */
static void nodes_are_set_between_launches(void **state)
{
    (void)state;
    enum { NODES = 5, ROUNDS = 40 };
    for (int seed = 0; seed < 4; seed++) {
        char settings[80];
        snprintf(settings, sizeof settings, "host_devices=1 host_memory=16M host_schedule=%d", seed);
        begin_test(settings);
        hdcu_graph graph;
        hdcu_graphnode node[NODES], stranger;
        hdcu_graphexec exec[2];
        hdcu_deviceptr at = p;
        uint32_t value = 1, n = 8, want[NODES] = {0};
        void *parameters[] = {&at, &value, &n};
        hdcu_kernel_node_params params = {add, 1, 1, 1, 8, 1, 1, 0, parameters, NULL, NULL, NULL};
        OK(d->cuGraphCreate(&graph, 0));
        for (int i = 0; i < NODES; i++) {
            OK(d->cuGraphAddKernelNode(&node[i], graph, i ? &node[i - 1] : NULL, i ? 1 : 0, &params));
        }
        OK(d->cuGraphInstantiateWithFlags(&exec[0], graph, 0));
        OK(d->cuGraphInstantiateWithFlags(&exec[1], graph, 0));
        for (uint32_t r = 0; r < ROUNDS; r++) { /* while launches are queued */
            for (uint32_t i = 0; i < NODES; i++) {
                OK(set(exec[r % 2], node[i], p + 1024 * i, r + i));
                want[i] += r + i;
            }
            OK(d->cuGraphLaunch(exec[r % 2], a));
        }
        OK(d->cuCtxSynchronize());
        for (size_t i = 0; i < NODES; i++) {
            assert_int_equal(word_at(256 * i), want[i]);
        }
        /* A refused call changes nothing. */
        params.block_x = 5000;
        assert_int_equal(d->cuGraphExecKernelNodeSetParams(exec[0], node[0], &params), HDCU_ERROR_INVALID_VALUE);
        assert_int_equal(d->cuGraphAddKernelNode(&stranger, graph, NULL, 0, &params), HDCU_ERROR_INVALID_VALUE);
        params.block_x = 8;
        params.function = NULL;
        assert_int_equal(d->cuGraphExecKernelNodeSetParams(exec[0], node[0], &params), HDCU_ERROR_INVALID_HANDLE);
        assert_int_equal(set(exec[0], NULL, p, 1), HDCU_ERROR_INVALID_VALUE);
        assert_int_equal(set(NULL, node[0], p, 1), HDCU_ERROR_INVALID_VALUE);
        OK(d->cuGraphExecDestroy(exec[1]));
        OK(d->cuGraphLaunch(exec[0], a));
        OK(d->cuGraphExecDestroy(exec[0])); /* the queued launch still completes */
        OK(d->cuGraphDestroy(graph));
        assert_int_equal(set(exec[0], node[0], p, 1), HDCU_ERROR_INVALID_VALUE);
        OK(d->cuCtxSynchronize());
        assert_int_equal(word_at(0), want[0] + ROUNDS - 2);
        end_test();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captured_work_runs_at_each_launch),
        cmocka_unit_test(objects_live_as_long_as_executables),
        cmocka_unit_test(a_spoilt_capture_ends_its_objects),
        cmocka_unit_test(a_stream_under_capture_has_no_number),
        cmocka_unit_test(nodes_are_set_between_launches),
        cmocka_unit_test(forks_join_in_any_schedule),
        cmocka_unit_test(graphs_can_be_captured_in_graphs),
        cmocka_unit_test(threads_say_what_they_mind),
        cmocka_unit_test(misuse_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
