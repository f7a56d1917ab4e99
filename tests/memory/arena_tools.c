/* arena_tools.c - see arena_tools.h. */
#include "arena_tools.h"

_Atomic uint64_t tool_finished_to[TOOL_LANES];
hdi_port *tool_port;

bool tool_finished(void *context, hdi_point point)
{
    (void)context;
    return point.position <= atomic_load_explicit(&tool_finished_to[point.lane], memory_order_acquire);
}

hdi_arena_config tool_config(size_t limit)
{
    static const hdcu_device handles[] = {0, 2, 3, 1};
    const hdi_local_port_config config = {
        .driver = &fake_driver, .device = 1, .context = fake_context, .index = 3, .n_devices = 4, .devices = handles};
    tool_drop_port(); /* left by a failed test */
    tool_port = hdi_local_port_create(&config);
    assert_non_null(tool_port);
    return (hdi_arena_config){.port = tool_port, .index = 3, .limit_bytes = limit, .finished = tool_finished};
}

hdi_arena *tool_make_from(const hdi_arena_config *config)
{
    for (int i = 0; i < TOOL_LANES; i++) {
        atomic_store(&tool_finished_to[i], 0);
    }
    hdi_arena *arena = NULL;
    assert_ok(hdi_arena_create(config, &arena));
    return arena;
}

hdi_arena *tool_make(size_t total, size_t limit)
{
    fake_reset(total);
    fake.most = limit != 0 ? limit : SIZE_MAX;
    hdi_arena_config config = tool_config(limit);
    return tool_make_from(&config);
}

void tool_drop_port(void)
{
    hdi_local_port_destroy(tool_port);
    tool_port = NULL;
}

void tool_check(hdi_arena *arena)
{
    char why[200] = "";
    if (!hdi_arena_check(arena, why, sizeof why)) {
        fail_msg("%s", why);
    }
}

void tool_end(hdi_arena *arena)
{
    tool_check(arena);
    assert_true(fake.created == tool_info(arena).mapped_bytes);
    assert_ok(hdi_arena_destroy(arena, false));
    tool_drop_port();
    assert_true(fake_is_clean());
    assert_int_equal(fake_depth(), 0);
}

hdi_arena_info tool_info(hdi_arena *arena)
{
    hdi_arena_info info;
    hdi_arena_get_info(arena, &info);
    return info;
}

hd_status tool_take_in(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out)
{
    hdi_points points;
    hd_status status = hdi_arena_alloc(arena, lane, bytes, out, &points);
    if (status == HD_OK) {
        hdi_points_release(&points);
    }
    return status;
}

hd_status tool_take(hdi_arena *arena, size_t bytes, hdcu_deviceptr *out)
{
    return tool_take_in(arena, 0, bytes, out);
}

void tool_give(hdi_arena *arena, hdcu_deviceptr at, uint32_t lane, uint64_t position)
{
    hdi_point point = {lane, position};
    hdi_arena_free(arena, at, &point, position != 0);
}
