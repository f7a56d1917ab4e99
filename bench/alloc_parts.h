/* alloc_parts.h - what the files behind `heddle bench alloc` share.
 *
 *    alloc.c            the conductor: opens the device, plans the cases, goes through them
 *    alloc_sides.c      the allocators that are compared, and the loops that are timed
 *    alloc_log.c        sequences of allocations and frees: made up, and read from files
 *    alloc_check.c      what is verified: no two live blocks overlap, sizes are right, bytes stay
 *    alloc_workloads.c  cases of one thread: pairs, random, holes, many live blocks, recorded programs
 *    alloc_threads.c    cases of several threads, and the storm under a limit
 *    alloc_kernels.c    the built-in kernels through Heddle and through the driver, and one that takes a given time
 *    alloc_beside.c     streams in parallel, frees while a kernel runs, kernels beside allocations
 *    alloc_reclaim.c    a training loop whose memory a garbage collector gives back, early or at the limit
 *    alloc_access.c     unified memory read by element; pinned memory
 *    alloc_report.c     figures, goals, the table, JSON
 *
 * Threads: the conductor owns the alloc_experiment; the threads of a case use sides, and each its own results.
 * Failures: functions return false and leave one line in `error`, which has PLAIN_ERROR bytes. An alloc_end
 * distinguishes a rival without room from a failure of the run.
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

/* No wait of the benchmark is longer: what takes this long hangs. */
#define ALLOC_TIMEOUT_NS ((int64_t)120 * 1000000000)

#define ALLOC_MIB ((uint64_t)1 << 20)

typedef struct alloc_experiment alloc_experiment;

/* ---- sequences ---- */

typedef struct alloc_op {
    uint64_t bytes; /* 0: a free */
    uint32_t slot;  /* which block: below alloc_log.slots, used again after its free */
    uint32_t lane;
} alloc_op;

typedef struct alloc_log {
    char name[80];
    alloc_op *ops;
    size_t count;
    uint32_t slots, lanes;
    uint64_t largest;   /* allocation */
    uint64_t peak_live; /* bytes */
    unsigned divisor;   /* what the sizes were divided by, to fit the device; 1: nothing */
    /* Reserved over live memory of PyTorch's allocator where the log was recorded, and with its expandable segments; 0:
     * not known. */
    double torch_ratio, torch_expandable_ratio;
} alloc_log;

/* 2 n operations, 73 % of them allocations of 1 to `largest` bytes, uniform, where `cap` leaves room for them; what is
 * freed is drawn from what is live. The same for the same arguments on every machine. */
bool alloc_log_random(uint64_t n, uint64_t largest, uint64_t cap, uint64_t seed, alloc_log *out, char *error);

/* n blocks of 256 bytes to 4 KiB, all allocated, then all freed in the same order. */
bool alloc_log_live(uint64_t n, alloc_log *out, char *error);

/* A file as bench/logs/README.md describes it, with what the file recorded.jsonl beside it has about it. */
bool alloc_log_read(const char *path, alloc_log *out, char *error);

/* Divides the sizes by a power of two until the peak is at most `most`. */
void alloc_log_fit(alloc_log *log, uint64_t most);

/* The most bytes that are live within the first `count` operations. */
uint64_t alloc_log_peak(const alloc_log *log, size_t count);

void alloc_log_release(alloc_log *log); /* zeroed: ignored */

/* ---- the allocators ---- */

typedef enum alloc_kind { ALLOC_HEDDLE, ALLOC_ASYNC, ALLOC_PLAIN, ALLOC_LIBC, ALLOC_KINDS } alloc_kind;

extern const char *const alloc_kind_names[ALLOC_KINDS], *const alloc_kind_ids[ALLOC_KINDS];

/* One live block; all zero: none. */
typedef union alloc_slot {
    hd_buffer *buffer;
    hdcu_deviceptr pointer;
    void *memory;
} alloc_slot;

/* One allocator, ready to be used by any number of threads, each after alloc_side_enter. */
typedef struct alloc_side {
    alloc_experiment *x;
    const hdi_driver *d;
    alloc_kind kind;
    int lanes;
    hd_runtime *runtime; /* HEDDLE, else NULL */
    hd_lane *lane[ALLOC_LANES_MAX];
    hdcu_stream stream[ALLOC_LANES_MAX]; /* of the rivals */
    uint64_t driver_calls_before;
    uint64_t free_before, free_least;        /* PLAIN: as the driver reports, when opened and at the least */
    _Atomic uint64_t live_bytes, live_count; /* LIBC: its bookkeeping */
} alloc_side;

/* Makes the calling thread ready. `settings` (may be "") are further options of Heddle's runtime. An async rival holds
 * no memory at first and keeps what it gets, as its makers intend for speed. */
bool alloc_side_open(alloc_experiment *x, alloc_kind kind, int lanes, const char *settings, alloc_side *out,
                     char *error);
void alloc_side_close(alloc_side *s); /* zeroed: ignored */
bool alloc_side_enter(alloc_side *s, char *error);

/* Gives back all memory that is held idle. */
bool alloc_side_trim(alloc_side *s, char *error);

/* PLAIN: notes how much is free now, as the driver reports it. */
void alloc_side_sample(alloc_side *s);

/* The most physical memory held since it was opened; 0: not known. And calls of the driver for memory in all that. */
uint64_t alloc_side_peak(alloc_side *s);
uint64_t alloc_side_driver_calls(alloc_side *s, uint64_t operations);

typedef enum alloc_end {
    ALLOC_DONE,
    ALLOC_NO_ROOM, /* out of memory; `error` has that, too */
    ALLOC_FAILED
} alloc_end;

alloc_end alloc_take(alloc_side *s, uint32_t lane, size_t bytes, alloc_slot *out, char *error);
bool alloc_give(alloc_side *s, uint32_t lane, alloc_slot *slot, char *error); /* empties it; an empty one is ignored */
uint64_t alloc_address(const alloc_side *s, const alloc_slot *slot);

static inline bool alloc_is_live(const alloc_slot *slot)
{
    return slot->pointer != 0;
}

/* `count` pairs of an allocation and a free: nanoseconds in all. */
alloc_end alloc_pairs(alloc_side *s, uint32_t lane, size_t bytes, uint64_t count, uint64_t *ns, char *error);
/* The same with each pair timed by itself, as long as the time lasts. */
alloc_end alloc_pairs_each(alloc_side *s, uint32_t lane, size_t bytes, uint64_t count, uint64_t deadline,
                           stats_histogram *pairs, char *error);

/* What a replay did. Blocks that are live at its end stay in `slots`. */
typedef struct alloc_replayed {
    size_t operations; /* of the log's; fewer than all: the time was over */
    uint64_t refused;  /* allocations for which there was no memory; their frees are left out */
    uint64_t ticks;    /* of all operations */
} alloc_replayed;

/* `slots` has log->slots empty ones. With Heddle, no memory is a failure. */
alloc_end alloc_replay(alloc_side *s, const alloc_log *log, uint64_t deadline, alloc_slot *slots,
                       stats_histogram *calls, alloc_replayed *out, char *error);

/* Frees what is live in slots[0..count), each in lane 0. */
bool alloc_give_all(alloc_side *s, alloc_slot *slots, size_t count, char *error);

/* Blocks until the lane's work is finished; whether there is some. */
bool alloc_wait(alloc_side *s, uint32_t lane, char *error);
bool alloc_is_busy(alloc_side *s, uint32_t lane);

/* ---- what is verified ---- */

/* Live blocks by address. One thread at a time. */
typedef struct alloc_checker {
    void *tree;
    uint64_t checked; /* blocks that were compared with all others */
} alloc_checker;

bool alloc_checker_add(alloc_checker *c, uint64_t address, uint64_t bytes, char *error);
void alloc_checker_remove(alloc_checker *c, uint64_t address, uint64_t bytes);
void alloc_checker_release(alloc_checker *c);

/* Checks blocks that are live now: no two overlap, and each has its size. Some of them are written at both ends, and keep
 * these bytes while the others are written. Adds to the experiment's count. `bytes[i]` is the size of slots[i]. */
bool alloc_check_live(alloc_side *s, alloc_slot *slots, const uint64_t *bytes, size_t count, char *error);

/* Replays with every block compared with all that are live, and checks what is live at the end. *done: operations. */
alloc_end alloc_check_replay(alloc_side *s, const alloc_log *log, uint64_t deadline, alloc_slot *slots, size_t *done,
                             char *error);

/* ---- results ---- */

/* What one allocator did in one case. Times are nanoseconds per pair, operation or run, as the case defines. */
typedef struct alloc_result {
    bool measured;
    char note[ALLOC_NOTE];           /* why not, or what was left out */
    double rounds[ALLOC_ROUNDS_MAX]; /* pairs: the median of short stretches */
    double means[ALLOC_ROUNDS_MAX];  /* pairs: over all of a round; else the same */
    int n_rounds;
    stats_histogram *histogram; /* while it is measured: of single operations, or pairs */
    stats_calls calls;          /* single operations (or pairs) */
    uint64_t operations, refused, driver_calls;
    uint64_t reserved_peak, live_peak; /* 0: not known, or of no meaning here */
    double part;                       /* of the sequence, that the time sufficed for */
} alloc_result;

typedef struct alloc_case {
    const char *group;
    char id[64], name[96];
    const char *unit; /* what a time is for: "pair", "operation", "run" */
    int threads;
    uint64_t bytes;       /* of a pair; 0: various */
    const alloc_log *log; /* that is replayed; NULL: none */
    alloc_result sides[ALLOC_KINDS];
} alloc_case;

/* One case, for alloc_case_run: `prepare` once, `round` in every round, `finish` at the end, for each allocator.
 * NO_ROOM of a rival takes it out of the case; of Heddle it is a failure. */
typedef struct alloc_work {
    int lanes;
    const char *settings;
    bool with_libc;  /* where the devices are host devices */
    bool peaks;      /* reserved and live peak mean something */
    bool apart;      /* one allocator after the other, each with all its rounds */
    uint64_t blocks; /* most that are live at once */
    alloc_end (*prepare)(struct alloc_work *w, alloc_side *s, alloc_result *r, char *error); /* may be NULL */
    alloc_end (*round)(struct alloc_work *w, alloc_side *s, int round, alloc_result *r, char *error);
    alloc_end (*finish)(struct alloc_work *w, alloc_side *s, alloc_result *r, char *error); /* may be NULL */
    const alloc_log *log;
    alloc_slot *slots[ALLOC_KINDS]; /* made by the work itself, released with free() at the end of the case */
    uint64_t bytes, count;
    void *more;
} alloc_work;

/* Measures a case on all allocators, in rounds with rotating order. */
bool alloc_case_run(alloc_experiment *x, alloc_case *c, alloc_work *w, char *error);

/* Which allocators take part: ALLOC_LIBC only with host devices. */
bool alloc_takes_part(const alloc_experiment *x, alloc_kind kind, bool with_libc);

/* ---- kernels ---- */

/* The built-in kernels on one side (not LIBC). */
typedef struct alloc_kernels {
    alloc_side *side;
    hd_kernel *fill, *copy, *matmul, *axpy;
    hdcu_module module;
    hdcu_function driver_fill, driver_copy, driver_matmul;
} alloc_kernels;

bool alloc_kernels_open(alloc_side *s, alloc_kernels *out, char *error);
void alloc_kernels_close(alloc_kernels *k); /* zeroed: ignored */

/* In this order:
 *   - n words of y
 *   - n words from x to y
 *   - c[m x n] = a[m x k] b[k x n] */
bool alloc_launch_fill(alloc_kernels *k, uint32_t lane, alloc_slot y, uint64_t n, uint32_t value, char *error);
bool alloc_launch_copy(alloc_kernels *k, uint32_t lane, alloc_slot y, alloc_slot x, uint64_t n, char *error);
bool alloc_launch_matmul(alloc_kernels *k, uint32_t lane, alloc_slot c, alloc_slot a, alloc_slot b, uint32_t m,
                         uint32_t n, uint32_t depth, char *error);

/* Host access, behind the lane's work. */
bool alloc_read(alloc_side *s, uint32_t lane, alloc_slot slot, uint64_t offset, void *out, size_t bytes, char *error);

/* A kernel of one block that takes a given time: the product of 32 x K ones with K x 32 ones. Every element of it is K.
 * Its result of 4 KiB goes wherever it is wanted. */
typedef struct alloc_spin {
    alloc_kernels *kernels;
    alloc_slot a, b;
    uint32_t depth; /* K */
    double ns;      /* as measured */
} alloc_spin;

enum { ALLOC_SPIN_EDGE = 32, ALLOC_SPIN_BYTES = 4 * ALLOC_SPIN_EDGE * ALLOC_SPIN_EDGE };

bool alloc_spin_open(alloc_kernels *k, double ns, alloc_spin *out, char *error);
void alloc_spin_close(alloc_spin *spin); /* zeroed: ignored */
bool alloc_spin_launch(alloc_spin *spin, uint32_t lane, alloc_slot c, char *error);
bool alloc_spin_check(alloc_spin *spin, uint32_t lane, alloc_slot c, char *error); /* that c is its result */

/* ---- experiments with results of their own ---- */

/* A free while a kernel runs: of the block that it uses, and of one that is not in use. Nanoseconds. */
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
    double cycles_per_s[ALLOC_KINDS][ALLOC_ROUNDS_MAX]; /* of the allocating thread: growths, or operations */
    int rounds;
} alloc_beside;

typedef struct alloc_limit {
    bool measured;
    int threads;
    uint64_t limit, reserved_peak; /* as Heddle counts */
    uint64_t driver_peak; /* as the driver does, everything on the device since the storm began; 0: not known */
    uint64_t asked;       /* the sum of what all threads want at once */
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
    double first_us; /* the read that moves the bytes */
} alloc_unified;

typedef struct alloc_pinned {
    bool measured;
    int rounds;
    uint64_t bytes;
    double first_ns; /* Heddle's first pair */
    double heddle_ns[ALLOC_ROUNDS_MAX], driver_ns[ALLOC_ROUNDS_MAX];
} alloc_pinned;

/* ---- the run ---- */

typedef struct alloc_step {
    const char *group;
    char id[64], name[96];
    bool (*run)(alloc_experiment *x, const struct alloc_step *step, char *error);
    uint64_t a, b;
    alloc_log *log; /* the experiment's */
    double fixed_s; /* what it takes whatever a slice is */
} alloc_step;

struct alloc_experiment {
    report_record record; /* comes first */
    const bench_options *options;
    char settings[256];  /* of every runtime: the device */
    hd_runtime *runtime; /* for the record; no case uses it */
    hd_runtime_info info;
    hd_device_info device;
    bool on_host;
    int processors;
    const hdi_driver *driver; /* the same one that Heddle's engines use, for the rivals */
    hdcu_device ordinal;
    hdcu_context context; /* the device's primary one, retained */
    hdcu_mempool pool;    /* its default pool; NULL: the driver has none */
    plain_image image;
    uint64_t room; /* bytes of device memory that a case may use */
    int rounds;
    double budget_s;          /* measuring time in all */
    uint64_t begun, slice_ns; /* CLOCK_MONOTONIC; for one allocator in one round, at most */
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
    uint64_t checked, tagged; /* blocks that were verified; of those, with their bytes */
    uint64_t results;         /* of kernels, that were compared with what they must be */
};

/* A fresh case with the step's names. */
alloc_case *alloc_case_add(alloc_experiment *x, const alloc_step *step);

/* CLOCK_MONOTONIC when a slice that begins now is over. */
uint64_t alloc_slice_end(const alloc_experiment *x, double slices);

/* The steps of each file. `b` and `a` are from the plan in alloc.c. */
bool alloc_run_pair(alloc_experiment *x, const alloc_step *step, char *error);
bool alloc_run_random(alloc_experiment *x, const alloc_step *step, char *error);
bool alloc_run_holes(alloc_experiment *x, const alloc_step *step, char *error);
bool alloc_run_live(alloc_experiment *x, const alloc_step *step, char *error);
bool alloc_run_replay(alloc_experiment *x, const alloc_step *step, char *error);
bool alloc_run_thread_pairs(alloc_experiment *x, const alloc_step *step, char *error);
bool alloc_run_thread_random(alloc_experiment *x, const alloc_step *step, char *error);
bool alloc_run_hand_over(alloc_experiment *x, const alloc_step *step, char *error);
bool alloc_run_limit(alloc_experiment *x, const alloc_step *step, char *error);
bool alloc_run_streams(alloc_experiment *x, const alloc_step *step, char *error);
bool alloc_run_busy(alloc_experiment *x, const alloc_step *step, char *error);
bool alloc_run_beside(alloc_experiment *x, const alloc_step *step, char *error);
bool alloc_run_reclaim(alloc_experiment *x, const alloc_step *step, char *error);
bool alloc_run_unified(alloc_experiment *x, const alloc_step *step, char *error);
bool alloc_run_pinned(alloc_experiment *x, const alloc_step *step, char *error);

/* ---- output ---- */

/* Both take a const alloc_experiment. */
void alloc_print_table(const void *experiment, FILE *out);
void alloc_print_json(const void *experiment, FILE *out);

#endif
