/* test_tensor_made_up.c - tensors are values that a program may make up: every public function that
 * takes one, with each field wrong.
 *
 * Promise: Every function refuses a tensor with a wrong field, names it, and changes nothing.
 * Placements: thread.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: a status and a message that names the function and the operand refuse a wrong tensor.
 * Bytes and results do not change.
 */
#include "tensors.h"

#include <ctype.h>
#include <limits.h>

enum { bytes = 4096, plenty = 1 << 16, random_tensors = 30000 };

#define HUGE_SIZE ((uint64_t)1 << 63)

/* ---- every function that takes tensors ---- */

typedef struct things {
    hd_runtime *runtime;
    hd_lane *lane;
    hd_buffer *x, *y, *z, *freed;
    hd_tensor good;  /* f32 [8, 8] over x */
    hd_tensor other; /* the same over y */
    hd_tensor third; /* over z */
    uint8_t content[bytes], *memory;
    hd_tensor view;
    hd_ticket ticket;
} things;

/* A function's use of the tensor decides which faults it can find. */
enum { FORM = 1, PLACE = 2, WRITES = 4, READS = 8 };

typedef struct call {
    const char *function, *operand;
    int sees;
    hd_status (*make)(things *t, const hd_tensor *bad);
} call;

static hd_status slice(things *t, const hd_tensor *bad)
{
    return hd_tensor_slice(bad, 0, 0, 1, 1, &t->view);
}

static hd_status permute(things *t, const hd_tensor *bad)
{
    const int order[HD_TENSOR_DIMS] = {1, 0, 2, 3, 4, 5, 6, 7};
    return hd_tensor_permute(bad, order, &t->view);
}

static hd_status transpose(things *t, const hd_tensor *bad)
{
    return hd_tensor_transpose(bad, 0, 1, &t->view);
}

static hd_status broadcast(things *t, const hd_tensor *bad)
{
    const uint64_t shape[] = {3, 8, 8};
    return hd_tensor_broadcast(bad, 3, shape, &t->view);
}

static hd_status reshape(things *t, const hd_tensor *bad)
{
    const uint64_t shape[] = {64};
    return hd_tensor_reshape(bad, 1, shape, &t->view);
}

static hd_status copy_to(things *t, const hd_tensor *bad)
{
    return hd_tensor_copy(bad, &t->other, &t->ticket);
}

static hd_status copy_from(things *t, const hd_tensor *bad)
{
    return hd_tensor_copy(&t->other, bad, &t->ticket);
}

static hd_status write_to(things *t, const hd_tensor *bad)
{
    return hd_tensor_write(bad, t->memory);
}

static hd_status read_from(things *t, const hd_tensor *bad)
{
    return hd_tensor_read(bad, t->memory);
}

static hd_status product_c(things *t, const hd_tensor *bad)
{
    return hd_tensor_matmul(t->lane, bad, &t->other, &t->third, 1, 0, &t->ticket);
}

static hd_status product_a(things *t, const hd_tensor *bad)
{
    return hd_tensor_matmul(t->lane, &t->third, bad, &t->other, 1, 0, &t->ticket);
}

static hd_status product_b(things *t, const hd_tensor *bad)
{
    return hd_tensor_matmul(t->lane, &t->third, &t->other, bad, 1, 0, &t->ticket);
}

static const call calls[] = {
    {"hd_tensor_slice", "the tensor", FORM, slice},
    {"hd_tensor_permute", "the tensor", FORM, permute},
    {"hd_tensor_transpose", "the tensor", FORM, transpose},
    {"hd_tensor_broadcast", "the tensor", FORM, broadcast},
    {"hd_tensor_reshape", "the tensor", FORM, reshape},
    {"hd_tensor_copy", "dst", FORM | PLACE | WRITES, copy_to},
    {"hd_tensor_copy", "src", FORM | PLACE | READS, copy_from},
    {"hd_tensor_write", "dst", FORM | PLACE | WRITES, write_to},
    {"hd_tensor_read", "src", FORM | PLACE | READS, read_from},
    {"hd_tensor_matmul", "c", FORM | PLACE | WRITES, product_c},
    {"hd_tensor_matmul", "a", FORM | PLACE | READS, product_a},
    {"hd_tensor_matmul", "b", FORM | PLACE | READS, product_b},
};
#define CALLS (sizeof calls / sizeof calls[0])

static void open_things(things *t)
{
    memset(t, 0, sizeof *t);
    const uint64_t shape[] = {8, 8};
    t->runtime = conf_open(NULL);
    t->lane = conf_default_lane(t->runtime, 0);
    conf_pattern(t->content, bytes, 3);
    t->memory = conf_memory(plenty);
    t->x = tensor_buffer(t->runtime, PLACE_FIRST, t->content, bytes);
    t->y = tensor_buffer(t->runtime, PLACE_FIRST, t->content, bytes);
    t->z = tensor_buffer(t->runtime, PLACE_FIRST, t->content, bytes);
    t->freed = tensor_buffer(t->runtime, PLACE_FIRST, t->content, bytes);
    hd_free(t->freed);
    CONF_OK(hd_tensor_make(t->x, 0, HD_TYPE_F32, 2, shape, &t->good));
    CONF_OK(hd_tensor_make(t->y, 0, HD_TYPE_F32, 2, shape, &t->other));
    CONF_OK(hd_tensor_make(t->z, 0, HD_TYPE_F32, 2, shape, &t->third));
    memset(&t->view, 0x55, sizeof t->view);
    t->ticket = (hd_ticket){NULL, 99};
}

static void close_things(things *t)
{
    conf_close(t->runtime);
    free(t->memory);
}

/* ---- one field at a time ---- */

typedef struct fault {
    const char *what;
    int seen_by; /* functions that see one of these */
    hd_status status;
    void (*make)(const things *t, hd_tensor *bad);
} fault;

static void no_buffer(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->buffer = NULL;
}

static void stale_buffer(const things *t, hd_tensor *bad)
{
    bad->buffer = t->freed;
}

static void lane_as_buffer(const things *t, hd_tensor *bad)
{
    bad->buffer = (hd_buffer *)t->lane;
}

static void type_none(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->type = (hd_type)0;
}

static void type_next(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->type = (hd_type)(HD_TYPE_C128 + 1);
}

static void type_negative(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->type = (hd_type)-1;
}

static void type_forged(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->type = (hd_type)0x7fffffff;
}

static void dims_negative(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->dims = -1;
}

static void dims_least(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->dims = INT_MIN;
}

static void dims_many(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->dims = HD_TENSOR_DIMS + 1;
}

static void dims_most(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->dims = INT_MAX;
}

static void shape_most(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->shape[0] = UINT64_MAX;
    bad->stride[0] = 0;
}

static void shape_wraps(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->shape[0] = bad->shape[1] = (uint64_t)1 << 32;
    bad->stride[0] = bad->stride[1] = 0;
}

static void shape_is_signed(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->shape[1] = HUGE_SIZE;
    bad->stride[1] = 0;
}

static void offset_behind(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->offset = bytes;
}

static void offset_short(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->offset = bytes - 8 * 8 * 4 + 4;
}

static void offset_most(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->offset = SIZE_MAX - 3;
}

static void stride_least(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->stride[0] = INT64_MIN;
}

static void stride_most(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->stride[1] = INT64_MAX - 3;
}

static void stride_backwards(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->stride[0] = -bad->stride[0];
}

#define WRAPS INT64_C(2635249153387078803) /* seven times that is 2^64 and 5 */

static void stride_wraps(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->offset = 8;
    bad->stride[0] = -WRAPS;
}

static void strides_wrap(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->offset = 8;
    bad->stride[0] = -(WRAPS / 2);
    bad->stride[1] = -(WRAPS - WRAPS / 2);
}

static void stride_none(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->stride[0] = 0;
}

static void strides_overlap(const things *t, hd_tensor *bad)
{
    (void)t;
    bad->stride[0] = 8;
}

static const fault faults[] = {
    {"no buffer", PLACE, HD_ERROR_HANDLE, no_buffer},
    {"a freed buffer", PLACE, HD_ERROR_HANDLE, stale_buffer},
    {"a lane as the buffer", PLACE, HD_ERROR_HANDLE, lane_as_buffer},
    {"type 0", FORM, HD_ERROR_ARGUMENT, type_none},
    {"the type behind the last one", FORM, HD_ERROR_ARGUMENT, type_next},
    {"type -1", FORM, HD_ERROR_ARGUMENT, type_negative},
    {"the largest type", FORM, HD_ERROR_ARGUMENT, type_forged},
    {"-1 dimensions", FORM, HD_ERROR_ARGUMENT, dims_negative},
    {"the fewest dimensions", FORM, HD_ERROR_ARGUMENT, dims_least},
    {"one dimension too many", FORM, HD_ERROR_ARGUMENT, dims_many},
    {"the most dimensions", FORM, HD_ERROR_ARGUMENT, dims_most},
    {"the largest size", FORM, HD_ERROR_ARGUMENT, shape_most},
    {"2^64 elements", FORM, HD_ERROR_ARGUMENT, shape_wraps},
    {"a size that is negative when signed", FORM, HD_ERROR_ARGUMENT, shape_is_signed},
    {"an offset behind the buffer", PLACE, HD_ERROR_RANGE, offset_behind},
    {"an offset one element too far", PLACE, HD_ERROR_RANGE, offset_short},
    {"the largest offset", PLACE, HD_ERROR_RANGE, offset_most},
    {"the least stride", PLACE, HD_ERROR_RANGE, stride_least},
    {"the largest stride", PLACE, HD_ERROR_RANGE, stride_most},
    {"a stride that leads in front of the buffer", PLACE, HD_ERROR_RANGE, stride_backwards},
    {"a stride that leads once around", PLACE, HD_ERROR_RANGE, stride_wraps},
    {"strides that lead once around together", PLACE, HD_ERROR_RANGE, strides_wrap},
    {"a repeated element", WRITES, HD_ERROR_ARGUMENT, stride_none},
    {"elements in each other's bytes", WRITES, HD_ERROR_ARGUMENT, strides_overlap},
};
#define FAULTS (sizeof faults / sizeof faults[0])

/* True if the message is one line, begins with the function's name, and names the operand. */
static bool says(const char *message, const call *c)
{
    size_t length = strlen(c->function);
    char operand[16];
    int n = snprintf(operand, sizeof operand, "%s", c->operand);
    bool named = false;
    for (const char *at = strstr(message, operand); at && !named; at = strstr(at + 1, operand)) {
        named = !isalnum((unsigned char)at[-1]) && !isalnum((unsigned char)at[n]);
    }
    return strncmp(message, c->function, length) == 0 && message[length] == ':' && named && !strchr(message, '\n');
}

static void every_field_is_looked_at(void **state)
{
    (void)state;
    static things t;
    open_things(&t);
    const hd_tensor untouched = t.view;
    for (size_t f = 0; f < FAULTS; f++) {
        hd_tensor bad = t.good;
        faults[f].make(&t, &bad);
        for (size_t i = 0; i < CALLS; i++) {
            if (!(faults[f].seen_by & calls[i].sees)) {
                continue;
            }
            hd_status status = calls[i].make(&t, &bad);
            if (status != faults[f].status || !says(hd_message(), &calls[i])) {
                conf_fail_at(__FILE__, __LINE__, "%s, %s: %s: %s, not %s: %s", calls[i].function, calls[i].operand,
                             faults[f].what, hd_status_name(status), hd_status_name(faults[f].status), hd_message());
            }
        }
        bool formless = (faults[f].seen_by & FORM) != 0;
        CONF_TRUE(!formless || (hd_tensor_elements(&bad) == 0 && !hd_tensor_is_contiguous(&bad)));
    }
    for (size_t i = 0; i < CALLS; i++) {
        CONF_FAILS(calls[i].make(&t, NULL), HD_ERROR_ARGUMENT);
        CONF_TRUE(says(hd_message(), &calls[i]));
    }
    CONF_TRUE(hd_tensor_elements(NULL) == 0 && !hd_tensor_is_contiguous(NULL));
    CONF_TRUE(memcmp(&t.view, &untouched, sizeof untouched) == 0);
    CONF_TRUE(t.ticket.lane == NULL && t.ticket.sequence == 99);
    CONF_HOLDS(t.x, 0, t.content, bytes);
    CONF_HOLDS(t.y, 0, t.content, bytes);
    CONF_HOLDS(t.z, 0, t.content, bytes);
    close_things(&t);
}

/* ---- any fields at all ---- */

static uint64_t any_number(conf_random *r)
{
    static const uint64_t edges[] = {0, 1, 2, 3, 4, 7, 8, 16, 32, 255, 4092, 4096, 4097, UINT32_MAX, HUGE_SIZE / 4};
    uint64_t n = edges[conf_below(r, sizeof edges / sizeof edges[0])];
    n = conf_chance(r, 10) ? HUGE_SIZE - n : n;
    return conf_chance(r, 20) ? 0 - n : n;
}

static hd_tensor any_tensor(conf_random *r, const things *t)
{
    hd_buffer *const buffers[] = {t->x, t->x, t->x, t->x, t->y, t->freed, NULL};
    hd_tensor made = t->good;
    made.buffer = buffers[conf_below(r, sizeof buffers / sizeof buffers[0])];
    made.offset = conf_chance(r, 50) ? made.offset : any_number(r);
    made.type = conf_chance(r, 70) ? made.type : (hd_type)(int)any_number(r);
    made.dims = conf_chance(r, 50) ? made.dims : (int)conf_below(r, HD_TENSOR_DIMS + 2) - 1;
    for (int i = 0; i < HD_TENSOR_DIMS; i++) {
        made.shape[i] = conf_chance(r, 50) ? made.shape[i] : any_number(r);
        made.stride[i] = conf_chance(r, 50) ? made.stride[i] : (int64_t)any_number(r);
    }
    return made;
}

/* For any values of the fields, a call ends with a status and, if it fails, with a message that
 * begins with its name. */
static void any_fields_are_safe(void **state)
{
    (void)state;
    static things t;
    open_things(&t);
    conf_random r = {11};
    int accepted = 0, refused = 0;
    for (int round = 0; round < random_tensors / CONF_SLOWNESS; round++) {
        hd_tensor made = any_tensor(&r, &t);
        const call *c = &calls[conf_below(&r, CALLS)];
        bool moves = (c->sees & PLACE) != 0;
        /* as much as the program's memory and time allow */
        bool fits = hd_tensor_elements(&made) <= plenty / 16;
        if (moves && !fits) {
            continue;
        }
        hd_status status = c->make(&t, &made);
        accepted += status == HD_OK;
        refused += status != HD_OK;
        if (status != HD_OK && strncmp(hd_message(), c->function, strlen(c->function)) != 0) {
            conf_fail_at(__FILE__, __LINE__, "round %d: %s: %s: %s", round, c->function, hd_status_name(status),
                         hd_message());
        }
        if (status == HD_OK && !moves) { /* a view of a possible tensor is possible, too */
            const int same[HD_TENSOR_DIMS] = {0, 1, 2, 3, 4, 5, 6, 7};
            CONF_OK(hd_tensor_permute(&t.view, same, &t.view));
        }
    }
    CONF_TRUE(accepted > 100 && refused > 100);
    CONF_OK(hd_lane_wait(t.lane, 60 * CONF_SECOND));
    close_things(&t);
}

int main(void)
{
    conf_begin("test_tensor_made_up");
    const struct CMUnitTest tests[] = {
        CONF_CASE(every_field_is_looked_at),
        CONF_CASE(any_fields_are_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
