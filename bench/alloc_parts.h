/* alloc_parts.h - shared by the files of `heddle bench alloc`.
 *
 *    alloc.c            the conductor: opens the device, plans the cases, runs them
 *    alloc_sides.c      the compared allocators, and the timed loops
 *    alloc_log.c        sequences of allocations and frees: generated, or read from files
 *    alloc_check.c      verifies that live blocks do not overlap, have the right size, and keep
 *                       their bytes
 *    alloc_workloads.c  cases of one thread: pairs, random, holes, many live blocks, recorded
 *                       programs
 *    alloc_threads.c    cases of several threads, and the storm under a limit
 *    alloc_kernels.c    the built-in kernels through Heddle and the driver, and one of given
 *                       duration
 *    alloc_beside.c     streams in parallel, frees while a kernel runs, kernels beside allocations
 *    alloc_reclaim.c    a training loop whose garbage collector frees memory early or at the limit
 *    alloc_access.c     unified memory read by element; pinned memory
 *    alloc_report.c     figures, goals, JSON
 *
 * Threads: the conductor owns the alloc_experiment; the threads of a case use sides, and each its
 * own results.
 * Failures: functions return false and leave one line in `error`, which holds PLAIN_ERROR bytes. An
 * alloc_end tells a rival without room from a failed run.
 */
#ifndef BENCH_ALLOC_PARTS_H
#define BENCH_ALLOC_PARTS_H

#include <heddle.h>
#include <stdatomic.h>
#include "bench/bench.h"
#include "cli/common/plain.h"
#include "cli/common/stats.h"
#include "driver/driver.h"

enum { ALLOC_LANES_MAX = 64, ALLOC_THREADS_MAX = 16, ALLOC_STEPS_MAX = 128, ALLOC_NOTE = 64 };

/* Limit of every wait of the benchmark: an operation that takes this long hangs. */
#define ALLOC_TIMEOUT_NS ((int64_t)120 * 1000000000)

#define ALLOC_MIB ((uint64_t)1 << 20)

typedef struct alloc_experiment alloc_experiment;

/* ---- sequences ---- */

typedef struct alloc_op {
    uint64_t bytes; /* 0: a free */
    uint32_t slot;  /* the block's number: below alloc_log.slots, reused after its free */
    uint32_t lane;
} alloc_op;

typedef struct alloc_log {
    char name[80];
    alloc_op *ops;
    size_t count;
    uint32_t slots, lanes;
    uint64_t largest;   /* largest allocation */
    uint64_t peak_live; /* bytes */
    unsigned divisor;   /* factor by which sizes were divided to fit the device; 1: none */
    /* PyTorch's allocator on the recording machine: reserved memory divided by live memory, without
     * and with expandable segments; 0: unknown. */
    double torch_ratio, torch_expandable_ratio;
} alloc_log;

/* 2 n operations. 73 % of them allocate 1 to `largest` bytes, uniformly distributed, if `cap`
 * leaves room; the others free a random live block. Equal arguments give equal logs on every
 * machine. */
bool bench_alloc_log_random(uint64_t n, uint64_t largest, uint64_t cap, uint64_t seed, alloc_log *out, char *error);

/* n blocks of 256 bytes to 4 KiB, all allocated, then all freed in the same order. */
bool bench_alloc_log_live(uint64_t n, alloc_log *out, char *error);

/* Reads a file in the format of bench/logs/README.md, with its entry in recorded.jsonl beside
 * it. */
bool bench_alloc_log_read(const char *path, alloc_log *out, char *error);

/* Divides the sizes by a power of two until the peak is at most `most`. */
void bench_alloc_log_fit(alloc_log *log, uint64_t most);

/* The largest number of live bytes within the first `count` operations. */
uint64_t bench_alloc_log_peak(const alloc_log *log, size_t count);

void bench_alloc_log_release(alloc_log *log); /* a zeroed one is ignored */

/* ---- the allocators ---- */

typedef enum alloc_kind { ALLOC_HEDDLE, ALLOC_ASYNC, ALLOC_PLAIN, ALLOC_LIBC, ALLOC_KINDS } alloc_kind;

extern const char *const alloc_kind_names[ALLOC_KINDS], *const alloc_kind_ids[ALLOC_KINDS];

/* A live block; all zero: none. */
typedef union alloc_slot {
    hd_buffer *buffer;
    hdcu_deviceptr pointer;
    void *memory;
} alloc_slot;

/* An allocator, ready for any number of threads, each after bench_alloc_side_enter. */
typedef struct alloc_side {
    alloc_experiment *x;
    const hdi_driver *d;
    alloc_kind kind;
    int lanes;
    hd_runtime *runtime; /* HEDDLE, else NULL */
    hd_lane *lane[ALLOC_LANES_MAX];
    hdcu_stream stream[ALLOC_LANES_MAX]; /* for the rivals */
    uint64_t driver_calls_before;
    /* PLAIN: free memory that the driver reported at opening, and the least since */
    uint64_t free_before, free_least;
    _Atomic uint64_t live_bytes, live_count; /* LIBC: its accounting */
} alloc_side;

/* Makes the calling thread ready. `settings` (may be "") are further options of Heddle's
 * runtime. An async rival starts without memory and keeps all memory that it gets, as NVIDIA
 * recommends for speed. */
bool bench_alloc_side_open(alloc_experiment *x, alloc_kind kind, int lanes, const char *settings, alloc_side *out,
                           char *error);
void bench_alloc_side_close(alloc_side *s); /* a zeroed one is ignored */
bool bench_alloc_side_enter(alloc_side *s, char *error);

/* Gives back all idle memory. */
bool bench_alloc_side_trim(alloc_side *s, char *error);

/* PLAIN: notes the free memory that the driver reports. */
void bench_alloc_side_sample(alloc_side *s);

/* bench_alloc_side_peak returns the most physical memory that the side held since it was opened; 0:
 * unknown. The second function returns the driver calls for memory in that time. */
uint64_t bench_alloc_side_peak(alloc_side *s);
uint64_t bench_alloc_side_driver_calls(alloc_side *s, uint64_t operations);

typedef enum alloc_end {
    ALLOC_DONE,
    ALLOC_NO_ROOM, /* out of memory; `error` is set, too */
    ALLOC_FAILED
} alloc_end;

alloc_end bench_alloc_take(alloc_side *s, uint32_t lane, size_t bytes, alloc_slot *out, char *error);
/* empties the slot; an empty one is ignored */
bool bench_alloc_give(alloc_side *s, uint32_t lane, alloc_slot *slot, char *error);
uint64_t bench_alloc_address(const alloc_side *s, const alloc_slot *slot);

static inline bool bench_alloc_is_live(const alloc_slot *slot)
{
    return slot->pointer != 0;
}

/* Times `count` pairs of an allocation and a free, in nanoseconds. */
alloc_end bench_alloc_pairs(alloc_side *s, uint32_t lane, size_t bytes, uint64_t count, uint64_t *ns, char *error);
/* Like bench_alloc_pairs, but times each pair separately, until the deadline. */
alloc_end bench_alloc_pairs_each(alloc_side *s, uint32_t lane, size_t bytes, uint64_t count, uint64_t deadline,
                                 stats_histogram *h, char *error);

/* The results of a replay. Blocks that are still live stay in `slots`. */
typedef struct alloc_replayed {
    size_t operations; /* operations of the log that ran; fewer than all if time ran out */
    uint64_t refused;  /* allocations that failed for lack of memory; their frees are skipped */
    uint64_t ticks;    /* for all operations */
} alloc_replayed;

/* `slots` holds log->slots empty entries. Running out of memory is a failure only for Heddle. */
alloc_end bench_alloc_replay(alloc_side *s, const alloc_log *log, uint64_t deadline, alloc_slot *slots,
                             stats_histogram *h, alloc_replayed *out, char *error);

/* Frees the live blocks in slots[0..count), each in lane 0. */
bool bench_alloc_give_all(alloc_side *s, alloc_slot *slots, size_t count, char *error);

/* Blocks until the lane's work, if any, is finished. */
bool bench_alloc_wait(alloc_side *s, uint32_t lane, char *error);
bool bench_alloc_is_busy(alloc_side *s, uint32_t lane);

/* ---- what is verified ---- */

/* Live blocks by address. One thread at a time. */
typedef struct alloc_checker {
    void *tree;
    uint64_t checked; /* blocks compared with all others */
} alloc_checker;

bool bench_alloc_checker_add(alloc_checker *c, uint64_t address, uint64_t bytes, char *error);
void bench_alloc_checker_remove(alloc_checker *c, uint64_t address, uint64_t bytes);
void bench_alloc_checker_release(alloc_checker *c);

/* Checks live blocks: no two overlap, and each has its size. Writes some of them at both ends,
 * and checks that they keep these bytes while others are written. Adds to the experiment's
 * count. `bytes[i]` is the size of slots[i]. */
bool bench_alloc_check_live(alloc_side *s, alloc_slot *slots, const uint64_t *bytes, size_t count, char *error);

/* Replays, compares every block with all live ones, and checks the live ones at the end. *done:
 * operations. */
alloc_end bench_alloc_check_replay(alloc_side *s, const alloc_log *log, uint64_t deadline, alloc_slot *slots,
                                   size_t *done, char *error);

/* ---- results ---- */

/* Results of one allocator in one case. Times are nanoseconds per pair, operation or run, as the
 * case defines. */
typedef struct alloc_result {
    bool measured;
    char note[ALLOC_NOTE];           /* why it was not measured, or what was left out */
    double rounds[ALLOC_ROUNDS_MAX]; /* of pairs, the median of short stretches */
    double means[ALLOC_ROUNDS_MAX];  /* of pairs, the mean of the whole round; else as `rounds` */
    int n_rounds;
    stats_histogram *histogram; /* only during the measurement: single operations, or pairs */
    stats_calls calls;          /* the same, summed up */
    uint64_t operations, refused, driver_calls;
    uint64_t reserved_peak, live_peak; /* 0: unknown, or meaningless here */
    double part;                       /* share of the sequence that fit into the time */
} alloc_result;

typedef struct alloc_case {
    const char *group;
    char id[64], name[96];
    const char *unit; /* unit of a time: "pair", "operation", "run" */
    int threads;
    uint64_t bytes;       /* size of a pair's block; 0: it varies */
    const alloc_log *log; /* the replayed log; NULL: none */
    alloc_result sides[ALLOC_KINDS];
} alloc_case;

/* A case for bench_alloc_case_run: for each allocator, `prepare` once, `round` in every round,
 * `finish` at the end. NO_ROOM removes a rival from the case; for Heddle it is a failure. */
typedef struct alloc_work {
    int lanes;
    const char *settings;
    bool with_libc;  /* only with host devices */
    bool peaks;      /* reserved and live peak are meaningful */
    bool apart;      /* each allocator runs all its rounds before the next one starts */
    uint64_t blocks; /* the most blocks that are live at once */
    /* may be NULL */
    alloc_end (*prepare)(struct alloc_work *w, alloc_side *s, alloc_result *r, char *error);
    alloc_end (*round)(struct alloc_work *w, alloc_side *s, int round, alloc_result *r, char *error);
    /* may be NULL */
    alloc_end (*finish)(struct alloc_work *w, alloc_side *s, alloc_result *r, char *error);
    const alloc_log *log;
    /* allocated by the work itself, freed with free() after the case */
    alloc_slot *slots[ALLOC_KINDS];
    uint64_t bytes, count;
    void *more;
} alloc_work;

/* Measures a case on all allocators, in rounds with rotating order. */
bool bench_alloc_case_run(alloc_experiment *x, alloc_case *c, alloc_work *w, char *error);

/* True if the allocator takes part; ALLOC_LIBC only with host devices. */
bool bench_alloc_takes_part(const alloc_experiment *x, alloc_kind kind, bool with_libc);

/* ---- kernels ---- */

/* The built-in kernels on one side (not LIBC). */
typedef struct alloc_kernels {
    alloc_side *side;
    hd_kernel *fill, *copy, *matmul, *axpy;
    hdcu_module module;
    hdcu_function driver_fill, driver_copy, driver_matmul;
} alloc_kernels;

bool alloc_kernels_open(alloc_side *s, alloc_kernels *out, char *error);
void alloc_kernels_close(alloc_kernels *k); /* a zeroed one is ignored */

/* Launch a kernel:
 *   - fill: sets n words of y to `value`
 *   - copy: copies n words from x to y
 *   - matmul: c[m x n] = a[m x depth] b[depth x n] */
bool alloc_launch_fill(alloc_kernels *k, uint32_t lane, alloc_slot y, uint64_t n, uint32_t value, char *error);
bool alloc_launch_copy(alloc_kernels *k, uint32_t lane, alloc_slot y, alloc_slot x, uint64_t n, char *error);
bool alloc_launch_matmul(alloc_kernels *k, uint32_t lane, alloc_slot c, alloc_slot a, alloc_slot b, uint32_t m,
                         uint32_t n, uint32_t depth, char *error);

/* Reads to the host once the lane's work is done. */
bool bench_alloc_read(alloc_side *s, uint32_t lane, alloc_slot slot, uint64_t offset, void *out, size_t bytes,
                      char *error);

/* A kernel of one block with a given duration: the product of 32 x K ones with K x 32 ones.
 * Every element of the result is K. The result needs 4 KiB, in any block of memory. */
typedef struct alloc_spin {
    alloc_kernels *kernels;
    alloc_slot a, b;
    uint32_t depth; /* K */
    double ns;      /* as measured */
} alloc_spin;

enum { ALLOC_SPIN_EDGE = 32, ALLOC_SPIN_BYTES = 4 * ALLOC_SPIN_EDGE * ALLOC_SPIN_EDGE };

bool alloc_spin_open(alloc_kernels *k, double ns, alloc_spin *out, char *error);
void alloc_spin_close(alloc_spin *spin); /* a zeroed one is ignored */
bool alloc_spin_launch(alloc_spin *spin, uint32_t lane, alloc_slot c, char *error);
/* checks that c is its result */
bool alloc_spin_check(alloc_spin *spin, uint32_t lane, alloc_slot c, char *error);

/* ---- experiments with results of their own ---- */

/* A free while a kernel runs: of the block that the kernel uses, and of an unused one.
 * Nanoseconds. */
typedef struct alloc_busy {
    bool measured[ALLOC_KINDS];
    double kernel_ms;
    double used[ALLOC_KINDS][ALLOC_ROUNDS_MAX], unused[ALLOC_KINDS][ALLOC_ROUNDS_MAX];
    int rounds;
} alloc_busy;

/* Small kernels in one lane, alone and beside an allocating thread. */
typedef enum alloc_storm_kind { ALLOC_BESIDE_RANDOM, ALLOC_BESIDE_GROWTH, ALLOC_BESIDE_KINDS } alloc_storm_kind;

typedef struct alloc_pace {
    double kernels_per_s, longest_gap_ns, submit_p99_ns, submit_max_ns;
} alloc_pace;

typedef struct alloc_beside {
    bool measured[ALLOC_KINDS];
    alloc_pace alone[ALLOC_KINDS][ALLOC_ROUNDS_MAX], beside[ALLOC_KINDS][ALLOC_ROUNDS_MAX];
    /* cycles of the allocating thread: growths, or operations */
    double cycles_per_s[ALLOC_KINDS][ALLOC_ROUNDS_MAX];
    int rounds;
} alloc_beside;

typedef struct alloc_limit {
    bool measured;
    int threads;
    uint64_t limit, reserved_peak; /* as Heddle counts */
    /* the driver's count, for everything on the device since the storm began; 0: unknown */
    uint64_t driver_peak;
    uint64_t asked; /* the sum of the simultaneous demands of all threads */
    uint64_t allocations, refused, waits, drains;
    double seconds;
} alloc_limit;

typedef struct alloc_reclaim_run {
    double total_s, longest_alloc_ms, longest_step_ms, mark_ms;
    uint64_t reserved_peak, live_peak;
    uint64_t early, at_limit; /* collections */
    double collect_s;
} alloc_reclaim_run;

typedef struct alloc_reclaim {
    int rounds, steps;
    uint32_t batch, width;
    uint64_t limit, garbage_per_step, objects;
    alloc_reclaim_run early[ALLOC_ROUNDS_MAX], at_limit[ALLOC_ROUNDS_MAX];
} alloc_reclaim;

typedef struct alloc_unified {
    bool measured;
    int rounds;
    double element_ns[ALLOC_ROUNDS_MAX], load_ns[ALLOC_ROUNDS_MAX], copy_ns[ALLOC_ROUNDS_MAX];
    double first_us; /* time of the first read, which moves the bytes */
} alloc_unified;

typedef struct alloc_pinned {
    bool measured;
    int rounds;
    uint64_t bytes;
    double first_ns; /* time of Heddle's first pair */
    double heddle_ns[ALLOC_ROUNDS_MAX], driver_ns[ALLOC_ROUNDS_MAX];
} alloc_pinned;

/* ---- the run ---- */

typedef struct alloc_step {
    const char *group;
    char id[64], name[96];
    bool (*run)(alloc_experiment *x, const struct alloc_step *step, char *error);
    uint64_t a, b;
    alloc_log *log; /* owned by the experiment */
    double fixed_s; /* its duration, which then does not depend on the slice */
} alloc_step;

struct alloc_experiment {
    report_record record; /* comes first */
    const bench_options *options;
    char settings[256];  /* settings of every runtime, which select the device */
    hd_runtime *runtime; /* for the record; no case uses it */
    hd_runtime_info info;
    hd_device_info device;
    bool on_host;
    int processors;
    const hdi_driver *driver; /* shared with Heddle's engines, for the rivals */
    hdcu_device ordinal;
    hdcu_context context; /* the device's primary context, retained */
    hdcu_mempool pool;    /* the device's default pool; NULL: unsupported */
    plain_image image;
    uint64_t room; /* bytes of device memory that a case may use */
    int rounds;
    double budget_s; /* total measuring time */
    /* begun: CLOCK_MONOTONIC; slice_ns: the time of one allocator in one round */
    uint64_t begun, slice_ns;
    alloc_log logs[ALLOC_REPLAYS_MAX];
    int n_logs;
    alloc_step steps[ALLOC_STEPS_MAX];
    int n_steps;
    alloc_case cases[ALLOC_STEPS_MAX];
    int n_cases;
    alloc_busy busy;
    alloc_beside beside[ALLOC_BESIDE_KINDS];
    alloc_limit limit;
    alloc_reclaim reclaim;
    alloc_unified unified;
    alloc_pinned pinned;
    /* verified blocks, and the part of them whose bytes were verified, too */
    uint64_t checked, tagged;
    uint64_t results; /* kernel results that were compared with the expected ones */
};

/* A fresh case with the step's names. */
alloc_case *bench_alloc_case_add(alloc_experiment *x, const alloc_step *step);

/* CLOCK_MONOTONIC at the end of `slices` slices that begin now. */
uint64_t bench_alloc_slice_end(const alloc_experiment *x, double slices);

/* The steps. The plan in alloc.c sets `a` and `b`. */
bool bench_alloc_run_pair(alloc_experiment *x, const alloc_step *step, char *error);
bool bench_alloc_run_random(alloc_experiment *x, const alloc_step *step, char *error);
bool bench_alloc_run_holes(alloc_experiment *x, const alloc_step *step, char *error);
bool bench_alloc_run_live(alloc_experiment *x, const alloc_step *step, char *error);
bool bench_alloc_run_replay(alloc_experiment *x, const alloc_step *step, char *error);
bool bench_alloc_run_thread_pairs(alloc_experiment *x, const alloc_step *step, char *error);
bool bench_alloc_run_thread_random(alloc_experiment *x, const alloc_step *step, char *error);
bool bench_alloc_run_hand_over(alloc_experiment *x, const alloc_step *step, char *error);
bool bench_alloc_run_limit(alloc_experiment *x, const alloc_step *step, char *error);
bool bench_alloc_run_streams(alloc_experiment *x, const alloc_step *step, char *error);
bool bench_alloc_run_busy(alloc_experiment *x, const alloc_step *step, char *error);
bool bench_alloc_run_beside(alloc_experiment *x, const alloc_step *step, char *error);
bool bench_alloc_run_reclaim(alloc_experiment *x, const alloc_step *step, char *error);
bool bench_alloc_run_unified(alloc_experiment *x, const alloc_step *step, char *error);
bool bench_alloc_run_pinned(alloc_experiment *x, const alloc_step *step, char *error);

/* ---- output ---- */

/* Both take a const alloc_experiment. */
void bench_alloc_print_json(const void *experiment, FILE *out);

#endif
