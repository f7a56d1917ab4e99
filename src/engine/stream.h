/* stream.h - the engine's side of a lane, and the engine: what the files that feed a device share.
 *
 *    hdi_stream    the engine's side of a lane: the CUDA stream, its events, how far it is
 *    hdi_engine    feeds one device: its streams, how it sleeps and wakes
 *
 * Threads: the thread that runs the device's engine, with the device's context current, unless a comment names others.
 * That is its own thread, or the holder of `running` in the placement inline.
 * Locks: none, except `chaining` of the engine for chains.
 * Always: done <= passed <= issued <= the lane's head, and signalled <= issued.
 */
#ifndef HDI_ENGINE_STREAM_H
#define HDI_ENGINE_STREAM_H

#include "engine/engine.h"
#include "engine/spans.h"
#include "engine/times.h"

/* ---- how long the kernels of a lane take (issue.c) ----
 *
 * The engine records when it gave launches to the driver, and when it saw that the device had passed a signal behind
 * them. Several stretches end at a signal: one from the signal before, and one from each of the last batches.
 * The time of a stretch, divided by its launches, is hardly ever less than a kernel takes, but may be far more:
 * - The first stretch includes time in which the engine was with other lanes and the device had nothing of this one.
 * - The others include the work that was in front of them.
 * - All of them include the time until the engine looks.
 *
 * So the least of them is taken. A stretch in which the lane did something else than launch does not count. */
#define HDI_KERNEL_TIME_BATCHES 4
/* A ticket in a chain is seen done at the chain's end: so much later at most, as far as the timing is measured. */
#define HDI_KERNEL_TIME_SPAN_NS 50000

/* Launches that were given to the driver in one call. */
typedef struct hdi_kernel_time_batch {
    uint64_t before; /* launches of the lane in front of it */
    int64_t given;   /* clock when the call returned; 0: no batch */
} hdi_kernel_time_batch;

/* What is stored with a signal. */
typedef struct hdi_kernel_time_signal {
    uint64_t launches; /* of the lane in front of it */
    int64_t since;     /* clock before the first call behind the signal before */
    bool others;       /* something else than launches is in front of it, too */
    hdi_kernel_time_batch batches[HDI_KERNEL_TIME_BATCHES];
} hdi_kernel_time_signal;

typedef struct hdi_kernel_time {
    hdi_kernel_time_signal next; /* the values of a signal that would be put now */
    uint32_t next_batch;         /* of `next.batches`, the oldest one */
    uint64_t passed;             /* launches in front of the signal that the device was last seen to pass */
    int64_t passed_at;           /* clock of that */
    int64_t asked_at;            /* clock when a signal was last put for the timing alone */
    int64_t kernel_ns;           /* about how long a kernel takes; 0: not measured */
} hdi_kernel_time;

/* ---- the structures ---- */

#define HDI_EVENTS_PER_LANE 16

/* A result of another lane that this lane reads. This lane's position is not done before the other's is. So a failure
 * of the other lane that is noticed late still reaches this one's tickets. */
typedef struct hdi_dependency {
    uint64_t position; /* of this lane, behind the wait */
    uint64_t target;   /* of the other lane */
    uint32_t lane;     /* the other one, global */
} hdi_dependency;

#define HDI_STREAM_SIGNALS 8
#define HDI_STREAM_NEW 8
#define HDI_KERNEL_WORDS 1024 /* words with a bit for each kernel number that a command can have */

typedef struct hdi_stream {
    _Atomic bool made; /* the fields below are set; by the thread that makes the lane */
    hdcu_stream handle;
    uint32_t number;
    uint64_t issued, done;
    uint64_t signalled; /* a completion write stands behind this position */
    /* Of the driver's queue: entries given to it, seen to be finished, in front of the last signal. */
    uint64_t entries, entries_done, entries_signalled;
    struct {
        uint64_t position, entries;
        hdi_kernel_time_signal timing;
    } signals[HDI_STREAM_SIGNALS]; /* that the device has not passed; several may have become one */
    uint32_t first_signal, n_signals;
    hdi_kernel_time timing;    /* how long the lane's kernels take */
    struct hdi_chains *chains; /* issue.c; NULL: none */
    struct {
        uint32_t kernel;
        uint64_t position;
    } new_kernels[HDI_STREAM_NEW]; /* launches of kernels that were not seen to end before */
    uint32_t n_new;
    uint64_t event_last; /* the highest position that an event stands behind */
    uint8_t tail;        /* TAIL_* of stream.c: what was issued last; at first 0 */
    hdcu_event event[HDI_EVENTS_PER_LANE];
    /* Of each event, for other threads: what it stands behind (0: nothing), the last cut in front of it, and how many hold it. */
    _Atomic uint64_t event_position[HDI_EVENTS_PER_LANE], event_cut[HDI_EVENTS_PER_LANE];
    _Atomic uint32_t event_holders[HDI_EVENTS_PER_LANE];
    uint32_t event_next;
    _Atomic uint64_t cut; /* the last one, by position (event.c) */
    bool failed;          /* commands are passed over instead of issued */
    bool sticky_failure;
    bool refused;         /* for a trace: the last command failed in its call, or was passed over */
    bool has_claims;      /* the lane is for claims */
    _Atomic bool blocked; /* at a wait whose event does not exist yet; written by the thread that runs the engine */
    /* At a claim that the program has not ended, whose position this is; 0: at none. Written like `blocked`. */
    _Atomic uint64_t claimed_to;
    hdi_failure cause; /* of `failed` */
    uint64_t front;    /* watchdog: `done` as it was at `front_since` */
    int64_t front_since;
    int64_t idle_since;              /* clock when the lane ran empty, 0: not empty */
    int64_t quiet_since;             /* clock when all of it was first seen done, 0: it was not */
    int64_t checked;                 /* clock of the last progress, or of the last look at the stream's status */
    uint64_t in_call;                /* slots of a command whose call has failed, and may have begun */
    uint64_t passed;                 /* the device is this far; `done` follows once the dependencies are done */
    bool loss_recorded;              /* of the device */
    bool flag_missing;               /* no completion write could be made: query the stream's status instead */
    uint32_t bad_looks;              /* queries of the status in a row that failed without killing the device */
    _Atomic(struct hdi_blas *) blas; /* for matrix products; by the port's thread. NULL: not opened, or there is none */
    hdcu_event *timed;       /* for each slot, what stands behind the operation that ends there; NULL: none was */
    struct hdi_spans *spans; /* NULL: nothing of the lane was ever recorded (spans.h) */
    hdi_dependency *dependencies;
    uint32_t first_dependency, n_dependencies, dependencies_room;
} hdi_stream;

/* The engine has just seen how far the device is. */
static inline void hdi_span_passed(hdi_engine *engine, hdi_stream *stream)
{
    if (__builtin_expect(stream->spans && stream->spans->n_clocked, 0)) {
        hdi_spans_end(engine, stream);
    }
}

/* States of an engine thread; 0: not started yet. */
#define HDI_ENGINE_RUNS 1
#define HDI_ENGINE_ENDED 2

struct hdi_engine {
    hdi_device *device;
    hdi_engine_shared *shared; /* the channel's */
    hdi_stream streams[HDI_LANES_MAX];
    int64_t watchdog_ns;   /* 0: none */
    int64_t now;           /* clock at the beginning of the pass, or behind the last call of the driver */
    uint64_t entries_most; /* of the driver's queue, for each lane */
    bool fences;           /* the engine fences, submitters do not: HDI_FENCES_ENGINE */
    int64_t retired_at;    /* clock when lanes with nothing to do were last taken off */
    _Atomic bool stop;
    _Atomic uint32_t started; /* futex word: HDI_ENGINE_* */
    int start_code;           /* the driver's code at the start */
    bool has_thread;
    pthread_t thread;
    hdi_mutex running;       /* placement inline: held by the thread that runs the engine */
    uint32_t bad_entries;    /* placement inline: refusals of the context in a row */
    hdi_mutex chaining;      /* executables, while they are used */
    int chain_fatal;         /* the driver's code that ended the device, in a call for chains; 0: none */
    uint32_t chain_most;     /* launches in a chain; 0: no chains */
    bool chains_eager;       /* they are made at their first use, and as long as they can be */
    bool chains_used;        /* some lane has chains */
    uint64_t chain_bytes;    /* of all lanes' */
    uint32_t chain_refusals; /* in a row */
    /* Clocks: before the first one no chains are used; of the last search for idle ones. */
    int64_t chains_again, chains_pruned;
    _Atomic uint64_t seen_to_end[HDI_KERNEL_WORDS]; /* bit per kernel number; an unload clears its kernels' */
    uint64_t full[HDI_LANES_MAX / 64];              /* lanes that had more to issue when they were visited last */
    int64_t company_at;                             /* clock when a lane with little to do was beside others */
    bool has_company;                               /* whether that was within COMPANY_NS */
    hdi_times times;                                /* of all lanes that keep some */
    hdi_recording recording;                        /* of a trace */
    /* Turns of full lanes so far, and the lanes that had the last turns and looks. */
    uint32_t turns, full_turn, awaited_turn, looked_at;
};

/* ---- issue.c ---- */

/* Notes a call that gave the driver so many launches; 0: something else. The clocks are those before and after it. */
void hdi_kernel_time_give(hdi_kernel_time *timing, uint32_t launches, int64_t before, int64_t behind);

/* Whether to put a signal behind the launches that were given last, for the timing alone. It is put where the present
 * estimate keeps chains shorter than `most`, or nearly. The cause may be that the engine was with other lanes. */
bool hdi_kernel_time_wants_signal(hdi_kernel_time *timing, uint32_t launches, uint32_t most, int64_t now);

/* Notes a signal behind everything that was given. */
void hdi_kernel_time_put_signal(hdi_kernel_time *timing, hdi_kernel_time_signal *signal);

/* Notes that the device has passed signals. `first` is the earliest of them, `last` the latest. `others`: one of them
 * has `others`. `now` is the clock. */
void hdi_kernel_time_pass(hdi_kernel_time *timing, const hdi_kernel_time_signal *first,
                          const hdi_kernel_time_signal *last, bool others, int64_t now);

#define HDI_CHAIN_MOST 32

/* Called by hd_open. */
void hdi_chains_start(hdi_engine *engine);

/* Whether the kernel was never seen to end. Then a signal has to stand in front of a launch and behind it, so that a
 * kernel that does not end can be named. */
static inline bool hdi_chain_is_new(const hdi_engine *engine, uint32_t kernel)
{
    /* relaxed: a number is given to another kernel long after the launches of the former one */
    uint64_t word = atomic_load_explicit(&engine->seen_to_end[kernel / 64 % HDI_KERNEL_WORDS], memory_order_relaxed);
    return !(word >> kernel % 64 & 1);
}

/* Issues launches from where the stream is, up to `head`. Returns how many; 0: the next command is to be issued by
 * itself. *end: where the last one ends. The device may be lost when it returns. */
uint32_t hdi_chain_issue(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end);

/* Notes a launch that was issued by itself. If its kernel was never seen to end, its end is looked for. */
void hdi_chain_note(hdi_engine *engine, hdi_stream *stream, uint32_t kernel, uint64_t position);

/* Notes which kernels have ended, after the device has passed stream->passed. */
void hdi_chain_learn(hdi_engine *engine, hdi_stream *stream);

/* Gives back executables that were not used for a while. True: some are left. */
bool hdi_chains_prune(hdi_engine *engine, int64_t now);

/* Called before a module is unloaded, whose kernels these are. When this returns no executable has its functions any more, and each kernel
 * counts as never seen to end. Any thread, with the device's context current. */
void hdi_chains_forget(hdi_engine *engine, const uint64_t kernels[HDI_KERNEL_WORDS]);

/* Called by hd_close. The engine has stopped. */
void hdi_chains_end(hdi_engine *engine, bool driver_usable);

/* Makes the driver's or the library's call for an operation (hdi_op_is_work), on the lane's CUDA stream. */
hdcu_result hdi_issue(hdi_engine *engine, const hdi_stream *stream, const hdi_command *c);

/* ---- stream.c ---- */

typedef struct hdi_pass {
    int64_t now;
    bool progress;  /* something was issued or seen finished */
    bool in_flight; /* some lane has unfinished work */
} hdi_pass;

/* Issues some of the lane's commands, and notices what is finished. True: the lane has more that could be issued
 * now. */
bool hdi_stream_visit(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass);

/* Determines how far the lane is, and moves `done`. */
void hdi_stream_reap(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass);

/* The device is dead: fails everything that is not finished. A worker process ends instead. */
void hdi_engine_lose(hdi_engine *engine, int driver_code);

static inline void hdi_engine_count_some(_Atomic uint64_t *counter, uint64_t n)
{
    /* one writer; relaxed: a statistic */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline void hdi_engine_count(_Atomic uint64_t *counter)
{
    hdi_engine_count_some(counter, 1);
}

/* Sets *cause: the command that ends at `end`, NULL where it is not known, and the driver's code. */
void hdi_stream_blame(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c, uint64_t end, int code,
                      hdi_failure *cause);
/* Records that positions from..to failed by stream->cause. */
void hdi_stream_record_failure(hdi_engine *engine, hdi_stream *stream, uint64_t from, uint64_t to);
/* All up to `position` is issued, and the device has nothing of it. */
static inline void hdi_stream_rest(hdi_engine *engine, hdi_stream *stream, uint64_t position)
{
    stream->passed = stream->signalled = position;
    /* else it would stay behind, until its low half fits a later position */
    atomic_store_explicit(&engine->device->channel.flags[stream->number].position, (uint32_t)position,
                          memory_order_relaxed);
}
/* A driver call for the command that begins at `begin` failed. Unless that killed the device, the command did not happen. */
void hdi_stream_command_failed(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, uint64_t begin, int code);

/* Makes the device write the position once it has finished everything issued so far. */
void hdi_stream_signal(hdi_engine *engine, hdi_stream *stream);

/* ---- event.c: events of a lane, which others wait for ---- */

/* Records an event behind everything issued so far. */
void hdi_stream_record_event(hdi_engine *engine, hdi_stream *stream);
/* A wait for something that was issued so far is no wait for anything that is issued from now on. */
void hdi_stream_cut(hdi_engine *engine, hdi_stream *stream);
/* Whether events behind what is issued now do not serve a waiter for that position. Then it waits until the position is done. Any thread. */
static inline bool hdi_stream_is_cut_behind(const hdi_stream *other, uint64_t position)
{
    return atomic_load_explicit(&other->cut, memory_order_acquire) >= position;
}
/* The event of another lane to wait for in order to wait for `position`; NULL: there is none. It is not recorded again before it is released. Any
 * thread. */
hdcu_event hdi_stream_hold_event(hdi_stream *other, uint64_t position, int *held);
void hdi_stream_release_event(hdi_stream *other, int held);

/* ---- program.c: what the program does itself in a lane ---- */

/* Takes in the claims that the program has ended by itself (hdi_claim_end_lane), which it does only while the engine has nothing of the lane. */
void hdi_stream_catch_up(hdi_engine *engine, hdi_stream *stream, uint64_t head);
/* Handles a CLAIM: its first slot ends with what is in front of it, and fails with what it reads. Then its end fails, too. */
void hdi_stream_begin_claim(hdi_engine *engine, hdi_stream *stream);
/* Handles a CLAIMED. True when the program has ended the claim. */
bool hdi_stream_end_claim(hdi_engine *engine, hdi_stream *stream, const hdi_command *c);
/* Makes a CALL. A failure that the program returned is recorded here; the driver's is returned. */
hdcu_result hdi_stream_call(hdi_engine *engine, hdi_stream *stream, const hdi_command *c);

/* ---- engine.c ---- */

/* Makes the engine's side of a lane, which goes on from the channel's `done`. Any thread, once per lane, before its
 * first command. */
hdi_answer hdi_stream_make(hdi_engine *engine, uint32_t number, bool sticky_failure);

#endif
