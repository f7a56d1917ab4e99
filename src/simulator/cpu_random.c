/* cpu_random.c - random numbers for perturbed schedules of blocks and threads.
 *
 * Threads: any. Locks: none. Blocking: none. Always: the same state gives the same numbers.
 */
#include "simulator/cpu_run.h"

uint64_t hdi_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t hdi_random_multiplier(uint64_t *state, uint64_t n)
{
    for (;;) {
        uint64_t candidate = hdi_random(state) >> 33 | 1;
        uint64_t a = candidate, b = n;
        while (b != 0) {
            uint64_t r = a % b;
            a = b;
            b = r;
        }
        if (a == 1) {
            return (uint32_t)candidate;
        }
    }
}
