/* blocks_model.h - the model that random runs of the allocator over offsets are compared with. It has the blocks that are handed out, and
 * for each granule the work that must end before its next owner may use it.
 *
 * Threads: the test's own.
 * Always: a new owner gets a point for each lane that may still use its bytes, or a check fails.
 */
#ifndef TEST_MEMORY_BLOCKS_MODEL_H
#define TEST_MEMORY_BLOCKS_MODEL_H

#include "blocks_tools.h"

enum { MODEL_LANES = 6, MODEL_UNITS = 4096 };

/* A block that is handed out. */
typedef struct model_live {
    size_t offset, bytes;
    hdi_point points[MODEL_LANES]; /* its uses, or what it inherited and never used */
    size_t n_points;
} model_live;

extern uint64_t model_need[MODEL_UNITS][MODEL_LANES]; /* per granule: what must be finished before a new owner's use */
extern model_live model_lives[MODEL_UNITS];
extern size_t model_n_lives;

/* An empty model, with random numbers that follow from the number. */
void model_begin(uint64_t from_seed);

/* Random, below `below`. */
uint64_t model_draw(uint64_t below);

/* A block is handed out with the points `told`. Checks them; then it has uses, or hands on what it inherited. */
void model_take(size_t offset, size_t bytes, const hdi_point *told, size_t n_told);

/* Takes one of the blocks out of the list. False: there is none. */
bool model_pick(model_live *out);

/* The block's uses are what its granules' next owners wait for. */
void model_give(const model_live *l);

/* Some work ends, in one lane; all of it ends. */
void model_finish_some(void);
void model_finish_all(void);

#endif
