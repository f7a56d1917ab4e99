/* pairs.c - makes the arguments of launches. If memory runs out, it ends the program.
 *
 * Threads: one. Blocking: none.
 */
#include "pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <heddle/kernel.h>

const pairs_row *const pairs_all[] = {pairs_reductions, pairs_neural, pairs_stencils,
                                      pairs_transforms, pairs_random, pairs_linear,
                                      pairs_images,     pairs_half,   NULL};

static void *make_memory(size_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    if (memory == NULL) {
        fprintf(stderr, "pairs: no memory (%zu bytes)\n", bytes);
        exit(2);
    }
    return memory;
}

static pairs_argument *add(pairs_launch *launch)
{
    if (launch->n_arguments == PAIRS_ARGUMENTS_MOST) {
        fprintf(stderr, "pairs: more than %d arguments\n", PAIRS_ARGUMENTS_MOST);
        exit(2);
    }
    return &launch->arguments[launch->n_arguments++];
}

static pairs_argument *add_array(pairs_launch *launch, pairs_type type, size_t count, uint32_t access)
{
    pairs_argument *a = add(launch);
    size_t bytes = count * pairs_type_bytes(type);
    a->type = type;
    a->count = count;
    a->access = access;
    a->before = make_memory(bytes + PAIRS_GUARD);
    memset((char *)a->before + bytes, 0xa5, PAIRS_GUARD);
    if (access != HD_READ) {
        a->expected = make_memory(count * sizeof(double));
    }
    return a;
}

void *pairs_in(pairs_launch *launch, pairs_type type, size_t count)
{
    return add_array(launch, type, count, HD_READ)->before;
}

double *pairs_out(pairs_launch *launch, pairs_type type, size_t count)
{
    pairs_argument *a = add_array(launch, type, count, HD_WRITE);
    memset(a->before, 0xa5, count * pairs_type_bytes(type));
    return a->expected;
}

double *pairs_inout(pairs_launch *launch, pairs_type type, size_t count, void **before)
{
    pairs_argument *a = add_array(launch, type, count, HD_READ_WRITE);
    if (before != NULL) {
        *before = a->before;
    }
    return a->expected;
}

double *pairs_slack(pairs_launch *launch)
{
    pairs_argument *a = &launch->arguments[launch->n_arguments - 1];
    a->slack = make_memory(a->count * sizeof(double));
    return a->slack;
}

void pairs_any_order(pairs_launch *launch)
{
    launch->arguments[launch->n_arguments - 1].any_order = true;
}

void pairs_value(pairs_launch *launch, hd_arg value)
{
    pairs_argument *a = add(launch);
    a->value = value;
    a->bytes = value.kind == HD_ARG_I32 || value.kind == HD_ARG_U32 || value.kind == HD_ARG_F32 ? 4 : 8;
}

void pairs_structure(pairs_launch *launch, const void *bytes, size_t size)
{
    pairs_argument *a = add(launch);
    a->bytes = size;
    memcpy(a->structure, bytes, size);
    a->value = hd_bytes(a->structure, size);
}

void pairs_release(pairs_launch *launch)
{
    for (size_t i = 0; i < launch->n_arguments; i++) {
        free(launch->arguments[i].before);
        free(launch->arguments[i].expected);
        free(launch->arguments[i].slack);
    }
    launch->n_arguments = 0;
}

/* splitmix64 */
uint32_t pairs_bits(pairs_launch *launch)
{
    uint64_t z = launch->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}

float pairs_random_f32(pairs_launch *launch, double low, double high)
{
    float x = (float)(low + (high - low) * (pairs_bits(launch) / 4294967296.0));
    return (double)x < high ? x : (float)low; /* rounding may have raised it to `high` */
}

float *pairs_in_f32(pairs_launch *launch, size_t count, double low, double high)
{
    float *x = pairs_in(launch, PAIRS_F32, count);
    for (size_t i = 0; i < count; i++) {
        x[i] = pairs_random_f32(launch, low, high);
    }
    return x;
}

size_t pairs_type_bytes(pairs_type type)
{
    static const size_t bytes[] = {1, 4, 4, 8, 2, 2, 4, 8};
    return bytes[type];
}

bool pairs_type_is_float(pairs_type type)
{
    return type >= PAIRS_F16;
}

double pairs_get(pairs_type type, const void *array, size_t i)
{
    switch (type) {
    case PAIRS_U8:
        return ((const uint8_t *)array)[i];
    case PAIRS_I32:
        return ((const int32_t *)array)[i];
    case PAIRS_U32:
        return ((const uint32_t *)array)[i];
    case PAIRS_U64:
        return (double)((const uint64_t *)array)[i];
    case PAIRS_F16:
        return hd_f16_to_f64(((const hd_f16 *)array)[i]);
    case PAIRS_BF16:
        return hd_bf16_to_f64(((const hd_bf16 *)array)[i]);
    case PAIRS_F32:
        return (double)((const float *)array)[i];
    default:
        return ((const double *)array)[i];
    }
}

void pairs_set(pairs_type type, void *array, size_t i, double value)
{
    switch (type) {
    case PAIRS_U8:
        ((uint8_t *)array)[i] = (uint8_t)value;
        break;
    case PAIRS_I32:
        ((int32_t *)array)[i] = (int32_t)value;
        break;
    case PAIRS_U32:
        ((uint32_t *)array)[i] = (uint32_t)value;
        break;
    case PAIRS_U64:
        ((uint64_t *)array)[i] = (uint64_t)value;
        break;
    case PAIRS_F16:
        ((hd_f16 *)array)[i] = hd_f16_from_f64(value);
        break;
    case PAIRS_BF16:
        ((hd_bf16 *)array)[i] = hd_bf16_from_f64(value);
        break;
    case PAIRS_F32:
        ((float *)array)[i] = (float)value;
        break;
    default:
        ((double *)array)[i] = value;
    }
}
