/* blocks_model.h - the model for random runs of the allocator over offsets. It lists the live
 * blocks and, for each granule, the work that must end before the next owner may use it.
 *
 * Threads: the test's own.
 * Always: a new owner gets a point for each lane that may still use its bytes, or a check fails.
 */
#ifndef TEST_MEMORY_BLOCKS_MODEL_H
#define TEST_MEMORY_BLOCKS_MODEL_H

#include "blocks_tools.h"

enum { MODEL_LANES = 6, MODEL_UNITS = 4096 };

/* A live block. */
typedef struct model_live {
    size_t offset, bytes;
    hdi_point points[MODEL_LANES]; /* its uses, or the points that it inherited and never used */
    size_t n_points;
} model_live;

/* per granule: the positions that must be finished before a new owner uses it */
extern uint64_t model_need[MODEL_UNITS][MODEL_LANES];
extern model_live model_lives[MODEL_UNITS];
extern size_t model_n_lives;

/* Starts an empty model; the seed determines all random numbers. */
void model_begin(uint64_t from_seed);

/* Returns a random number below `below`. */
uint64_t model_draw(uint64_t below);

/* Adds a live block that came with the points `told`. Checks them; then the block gets uses, or
 * passes on its points. */
void model_take(size_t offset, size_t bytes, const hdi_point *told, size_t n_told);

/* Removes a random block from the list. Returns false if it is empty. */
bool model_pick(model_live *out);

/* Frees the block: the next owners of its granules wait for its uses. */
void model_give(const model_live *l);

/* Ends some work in one lane; ends all work. */
void model_finish_some(void);
void model_finish_all(void);

#endif
