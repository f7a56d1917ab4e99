/* blocks_model.c - see blocks_model.h. */
#include "blocks_model.h"

uint64_t model_need[MODEL_UNITS][MODEL_LANES];
model_live model_lives[MODEL_UNITS];
size_t model_n_lives;

static uint64_t seed, submitted[MODEL_LANES];

void model_begin(uint64_t from_seed)
{
    seed = from_seed * 0x9e3779b97f4a7c15u + 1;
    memset(model_need, 0, sizeof model_need);
    memset(submitted, 0, sizeof submitted);
    model_n_lives = 0;
}

uint64_t model_draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

void model_take(size_t offset, size_t bytes, const hdi_point *told, size_t n_told)
{
    uint64_t to[MODEL_LANES] = {0};
    size_t end = offset + (bytes + G - 1) / G * G;
    assert_true(n_told <= MODEL_LANES);
    for (size_t i = 0; i < n_told; i++) {
        assert_true(told[i].lane < MODEL_LANES && (i == 0 || told[i].lane > told[i - 1].lane));
        assert_true(told[i].position <= submitted[told[i].lane]);
        to[told[i].lane] = told[i].position;
    }
    for (size_t g = offset / G; g < end / G; g++) {
        for (int lane = 0; lane < MODEL_LANES; lane++) {
            assert_true(model_need[g][lane] <= finished_to[lane] || to[lane] >= model_need[g][lane]);
        }
    }
    model_live *l = &model_lives[model_n_lives++];
    *l = (model_live){.offset = offset, .bytes = end - offset};
    if (model_draw(4) == 0) { /* never used: its inherited points pass to the next owner */
        memcpy(l->points, told, n_told * sizeof *told);
        l->n_points = n_told;
        return;
    }
    l->n_points = 1 + (size_t)model_draw(MODEL_LANES);
    for (size_t i = 0; i < l->n_points; i++) {
        uint32_t lane = (uint32_t)model_draw(MODEL_LANES);
        l->points[i] = (hdi_point){lane, ++submitted[lane]};
    }
}

bool model_pick(model_live *out)
{
    if (model_n_lives == 0) {
        return false;
    }
    size_t i = (size_t)model_draw(model_n_lives);
    *out = model_lives[i];
    model_lives[i] = model_lives[--model_n_lives];
    return true;
}

void model_give(const model_live *l)
{
    for (size_t g = l->offset / G; g < (l->offset + l->bytes) / G; g++) {
        memset(model_need[g], 0, sizeof model_need[g]);
        for (size_t j = 0; j < l->n_points; j++) {
            uint64_t *n = &model_need[g][l->points[j].lane];
            *n = l->points[j].position > *n ? l->points[j].position : *n;
        }
    }
}

void model_finish_some(void)
{
    uint32_t lane = (uint32_t)model_draw(MODEL_LANES);
    finished_to[lane] += model_draw(submitted[lane] - finished_to[lane] + 1);
}

void model_finish_all(void)
{
    memcpy(finished_to, submitted, sizeof submitted);
}
