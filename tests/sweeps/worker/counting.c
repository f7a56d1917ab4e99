/* counting.c - counts chains of launches, in the test itself and in the worker program that
 * contains this file.
 *
 * Threads: any. Locks: none. HEDDLE_TEST_COUNTING names the file with the counts; the workers of a
 * test find it there.
 */
#include "sweeps/worker/counting.h"

#include <pthread.h>
#include <stdlib.h>
#include "driver/driver.h"
#include "engine/stream.h"
#include "sweeps/worker/shared.h"
#include "support/changed_driver.h"

counted_chains *counted;

bool counting_begin(void)
{
    counted = shared_make("HEDDLE_TEST_COUNTING", sizeof *counted);
    return counted != NULL && setenv("HEDDLE_WORKER", HD_TEST_COUNTING_WORKER, 1) == 0;
}

/* A worker starts after the test made the file. */
__attribute__((constructor)) static void find_file(void)
{
    counted = shared_find("HEDDLE_TEST_COUNTING", sizeof *counted);
}

/* ---- counted calls: the linker puts these in place of the library's calls (tests/CMakeLists.txt)
 * ---- */

uint32_t __real_hdi_chain_issue(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end);
uint32_t __wrap_hdi_chain_issue(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end);
uint32_t __wrap_hdi_chain_issue(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end)
{
    uint32_t n = __real_hdi_chain_issue(engine, stream, head, most, end);
    if (counted == NULL) {
        return n;
    }
    atomic_fetch_add(n > 0 ? &counted->chains : &counted->alone, 1);
    atomic_fetch_add(&counted->several, n > 1);
    atomic_fetch_add(&counted->launches, n);
    uint64_t longest = atomic_load(&counted->longest);
    while (n > longest && !atomic_compare_exchange_weak(&counted->longest, &longest, n)) {
    }
    return n;
}

static void count(counted_call which)
{
    if (counted != NULL) {
        atomic_fetch_add(&counted->calls[which], 1);
    }
}

/* clang-format off */
static hdcu_result count_cuGraphCreate(hdcu_graph *graph, unsigned flags)
{
    count(COUNTED_cuGraphCreate);
    return real->cuGraphCreate(graph, flags);
}

static hdcu_result count_cuGraphAddKernelNode(hdcu_graphnode *node, hdcu_graph graph, const hdcu_graphnode *before, size_t n, const hdcu_kernel_node_params *params)
{
    count(COUNTED_cuGraphAddKernelNode);
    return real->cuGraphAddKernelNode(node, graph, before, n, params);
}

static hdcu_result count_cuGraphInstantiateWithFlags(hdcu_graphexec *exec, hdcu_graph graph, unsigned long long flags)
{
    count(COUNTED_cuGraphInstantiateWithFlags);
    return real->cuGraphInstantiateWithFlags(exec, graph, flags);
}

static hdcu_result count_cuGraphExecKernelNodeSetParams(hdcu_graphexec exec, hdcu_graphnode node, const hdcu_kernel_node_params *params)
{
    count(COUNTED_cuGraphExecKernelNodeSetParams);
    return real->cuGraphExecKernelNodeSetParams(exec, node, params);
}

static hdcu_result count_cuGraphLaunch(hdcu_graphexec exec, hdcu_stream stream)
{
    count(COUNTED_cuGraphLaunch);
    return real->cuGraphLaunch(exec, stream);
}

static hdcu_result count_cuGraphExecDestroy(hdcu_graphexec exec)
{
    count(COUNTED_cuGraphExecDestroy);
    return real->cuGraphExecDestroy(exec);
}

static hdcu_result count_cuGraphDestroy(hdcu_graph graph)
{
    count(COUNTED_cuGraphDestroy);
    return real->cuGraphDestroy(graph);
}
/* clang-format on */

static void change_table(hdi_driver *table)
{
    table->cuGraphCreate = count_cuGraphCreate;
    table->cuGraphAddKernelNode = count_cuGraphAddKernelNode;
    table->cuGraphInstantiateWithFlags = count_cuGraphInstantiateWithFlags;
    table->cuGraphExecKernelNodeSetParams = count_cuGraphExecKernelNodeSetParams;
    table->cuGraphLaunch = count_cuGraphLaunch;
    table->cuGraphExecDestroy = count_cuGraphExecDestroy;
    table->cuGraphDestroy = count_cuGraphDestroy;
}

hd_status __wrap_hdi_driver_host(const hdi_driver **out)
{
    return give_changed(out);
}
