/* stream.h - the engine, the engine's side of a lane, and the declarations that the engine's files
 * share.
 *
 *    hdi_stream    the engine's side of a lane: the CUDA stream, its events, how far the lane is
 *    hdi_engine    feeds one device: the device's streams, and how the engine sleeps and wakes
 *
 * Threads: the thread that runs the device's engine, with the device's context current, unless a
 * comment names others. In the placement inline, the thread that runs the engine is the holder of
 * `running`; otherwise the engine has a thread of its own.
 * Locks: none, except `chaining` of the engine for chains (issue.c).
 * Always: done <= passed <= issued <= the lane's head, and signalled <= issued.
 */
#ifndef HDI_ENGINE_STREAM_H
#define HDI_ENGINE_STREAM_H

#include "engine/engine.h"
#include "engine/kernel_time.h"
#include "engine/spans.h"
#include "engine/times.h"

/* ---- the structures ---- */

#define HDI_EVENTS_PER_LANE 16

/* A result of another lane that this lane reads. `position` counts as done only after `target` is
 * done. So a failure of the other lane that is noticed late still reaches the tickets of this
 * lane. */
typedef struct hdi_dependency {
    uint64_t position; /* of this lane, behind the wait */
    uint64_t target;   /* of the other lane */
    uint32_t lane;     /* the other lane, global */
} hdi_dependency;

#define HDI_STREAM_SIGNALS 8
#define HDI_STREAM_NEW 8
#define HDI_KERNEL_WORDS 1024 /* words with a bit for each possible kernel number of a command */

/* The kind of a lane's last work, which decides how its end is signalled. */
enum {
    /* Work of kernels. The driver also uses kernels for fills, and for copies inside the device.
     * The value is 0, so that a new lane has it. */
    HDI_TAIL_KERNEL,
    HDI_TAIL_COPY, /* work of a copy engine */
};

typedef struct hdi_stream {
    _Atomic bool made; /* the thread that makes the lane sets the fields below */
    hdcu_stream handle;
    uint32_t number;
    uint64_t issued, done;
    uint64_t lost_to;   /* as in the channel when the lane was made */
    uint64_t signalled; /* a completion write stands behind this position */
    /* Counts of entries in the driver's queue: given to the driver, seen finished, and in front of
     * the last signal. */
    uint64_t entries, entries_done, entries_signalled;
    struct {
        uint64_t position, entries;
        hdi_kernel_time_signal timing;
        /* the signals that the device did not pass yet; one entry may stand for several signals */
    } signals[HDI_STREAM_SIGNALS];
    uint32_t first_signal, n_signals;
    hdi_kernel_time timing;    /* how long the lane's kernels take */
    struct hdi_chains *chains; /* chains.h; NULL: none */
    struct {
        uint32_t kernel;
        uint64_t from, position; /* the signals around the launch */
        /* clock time when the engine saw the work in front of the launch done; 0: not yet */
        int64_t begun;
    } new_kernels[HDI_STREAM_NEW]; /* launches that stand between two signals */
    uint32_t n_new;
    uint64_t event_last; /* the highest position with an event behind it */
    uint8_t tail;        /* HDI_TAIL_*: the kind of the work issued last */
    hdcu_event event[HDI_EVENTS_PER_LANE];
    /* For other threads. For each event: the position that it marks (0: none), the last cut in
     * front of it, and the number of its holders. */
    _Atomic uint64_t event_position[HDI_EVENTS_PER_LANE], event_cut[HDI_EVENTS_PER_LANE];
    _Atomic uint32_t event_holders[HDI_EVENTS_PER_LANE];
    uint32_t event_next;
    _Atomic uint64_t cut; /* the position of the last cut (event.c) */
    bool failed;          /* commands are skipped instead of issued */
    bool sticky_failure;
    /* for a trace: the driver call for the last command failed, or the command was skipped */
    bool refused;
    bool has_claims; /* the lane is for claims */
    /* The lane stands at a wait whose event does not exist yet. The thread that runs the engine
     * writes the field. */
    _Atomic bool blocked;
    /* The position of the open claim that the lane stands at; 0: none. Written like `blocked`. */
    _Atomic uint64_t claimed_to;
    hdi_failure cause;   /* of `failed` */
    uint64_t front;      /* for the watchdog: the value of `done` at `front_since` */
    int64_t front_since; /* in the watchdog's time (engine.c) */
    int64_t idle_since;  /* clock time when the lane became empty; 0: it is not empty */
    int64_t quiet_since; /* clock time when all work was first seen done; 0: not yet */
    /* Clock time of the last progress, or of the last query of the stream's status. */
    int64_t checked;
    /* the number of slots of a command whose driver call failed, although its work may have
     * begun */
    uint64_t in_call;
    /* The device passed this position; `done` follows once the dependencies are done. */
    uint64_t passed;
    bool loss_recorded; /* of the device */
    /* No completion write was possible, so the engine queries the stream's status instead. */
    bool flag_missing;
    /* The number of successive status queries that failed, but did not make the device lost. */
    uint32_t bad_looks;
    /* The library for matrix products, set by the port's thread. NULL: it is not opened, or there
     * is none. */
    _Atomic(struct hdi_blas *) blas;
    /* Per slot, the event behind the operation that ends there; NULL: never timed. */
    hdcu_event *timed;
    struct hdi_spans *spans; /* NULL: the lane never recorded anything (spans.h) */
    hdi_dependency *dependencies;
    uint32_t first_dependency, n_dependencies, dependencies_room;
} hdi_stream;

/* Call this when the engine just saw how far the device is. */
static inline void hdi_span_passed(hdi_engine *engine, hdi_stream *stream)
{
    if (__builtin_expect(stream->spans && stream->spans->n_clocked, 0)) {
        hdi_spans_end(engine, stream);
    }
}

/* States of an engine thread; 0: not started yet. */
#define HDI_ENGINE_RUNS 1
#define HDI_ENGINE_ENDED 2

/* ---- blocked.c: streams that stand at a wait inside the driver ---- */

#define HDI_BLOCKED_MOST 12

typedef struct hdi_blocked {
    uint32_t most, n;
    struct {
        uint32_t stream; /* its number */
        /* The stream makes several waits. Only the stream's progress shows when all of them are
         * over. */
        bool several;
        uint64_t position; /* the position behind the last wait */
        hdi_point target;  /* the target of the wait, if it is the only one */
    } at[HDI_BLOCKED_MOST];
} hdi_blocked;

/* A chain has 1, 2, 4 ... 32 launches. */
#define HDI_CHAIN_SIZES 6
#define HDI_CHAIN_MOST (1 << (HDI_CHAIN_SIZES - 1))

/* A launch as the driver takes it, with pointers into itself and into the command. */
typedef struct hdi_launch {
    hdcu_kernel_node_params params;
    const hdi_command *command;
    uint32_t kernel;
    size_t bytes;
    void *extra[5];
} hdi_launch;

struct hdi_engine {
    hdi_device *device;
    hdi_engine_shared *shared; /* in the channel */
    hdi_stream streams[HDI_LANES_MAX];
    /* the number of words with 64 lanes each, up to the last lane that was made */
    _Atomic uint32_t words;
    int64_t watchdog_ns;   /* 0: none */
    int64_t unwatched;     /* clock time that the watchdog does not count (engine_watch_time) */
    int64_t now;           /* clock at the beginning of the pass, or after the last driver call */
    uint64_t entries_most; /* the most entries of the driver's queue for each lane */
    bool fences;           /* the engine fences, so submitters need not (HDI_FENCES_ENGINE) */
    int64_t retired_at;    /* clock time when idle lanes were last made inactive */
    _Atomic bool stop;
    _Atomic uint64_t in_function; /* the program's function that the engine runs now; 0: none */
    _Atomic uint32_t started;     /* futex word: HDI_ENGINE_* */
    int start_code;               /* the driver's code when the thread started */
    bool has_thread;
    pthread_t thread;
    hdi_mutex running;    /* placement inline: held by the thread that runs the engine */
    uint32_t bad_entries; /* placement inline: successive refusals of the context */
    hdi_mutex chaining;   /* guards executable graphs while they are used */
    /* The driver's fatal code in a call for chains; 0: none. */
    int chain_fatal;
    uint32_t chain_most; /* launches in a chain; 0: no chains */
    bool chains_eager;   /* chains are as long as possible */
    bool chains_used;    /* some lane has chains */
    /* a hint: no chains exist yet, or some lane found no spare chain */
    _Atomic bool chains_lack;
    struct hdi_chain *chains_spare[HDI_CHAIN_SIZES];
    /* a launch that is the pattern for the nodes of new chains; NULL: no launch is known yet */
    hdi_command *chains_like;
    uint64_t chain_bytes;    /* of all chains */
    uint32_t chain_refusals; /* in a row */
    int64_t chains_again;    /* clock time when chains may be used again */
    /* Clock times when the engine last took back idle chains: in its regular searches, and for a
     * lane that found no spare chain. */
    int64_t chains_pruned, chains_searched;
    /* clock time when the engine could make no chains because of another runtime */
    int64_t chains_asked;
    /* Both contain one bit for each kernel number, which an unload clears. `seen_to_end`: the
     * engine saw the kernel end. `lasting`: the kernel ran long when it was last measured. */
    _Atomic uint64_t seen_to_end[HDI_KERNEL_WORDS], lasting[HDI_KERNEL_WORDS];
    hdi_blocked blocked;               /* streams that wait for others */
    uint64_t full[HDI_LANES_MAX / 64]; /* the full lanes (engine.c) */
    /* clock time when a lane with few commands last had work while other lanes had work */
    int64_t company_at;
    bool has_company;        /* `company_at` is less than COMPANY_NS ago */
    hdi_times times;         /* the data that the times of all lanes share */
    hdi_recording recording; /* of a trace */
    /* The number of turns of full lanes so far. Then the lanes that got the last turn, the last
     * turn as an awaited lane, and the last check. */
    uint32_t turns, full_turn, awaited_turn, looked_at;
};

/* ---- issue.c ---- */

/* True if the engine never saw the kernel end. Then a launch needs a signal in front and a signal
 * behind, so that messages can name a kernel that does not end. */
static inline bool hdi_chain_is_new(const hdi_engine *engine, uint32_t kernel)
{
    /* relaxed: another kernel gets the number long after the former kernel's launches */
    uint64_t word = atomic_load_explicit(&engine->seen_to_end[kernel / 64 % HDI_KERNEL_WORDS], memory_order_relaxed);
    return !(word >> kernel % 64 & 1);
}

/* Issues launches from the stream's position, up to `head`. Returns the number of launches; 0: the
 * caller issues the next command by itself. *end: the end of the last launch. The device may be
 * lost when this function returns. */
uint32_t hdi_chain_issue(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end);

/* True if a launch of the kernel stands between two signals: the kernel is new, or ran long when it
 * was last measured. */
static inline bool hdi_chain_is_apart(const hdi_engine *engine, uint32_t kernel)
{
    /* relaxed: as in hdi_chain_is_new */
    uint64_t word = atomic_load_explicit(&engine->lasting[kernel / 64 % HDI_KERNEL_WORDS], memory_order_relaxed);
    return hdi_chain_is_new(engine, kernel) || (word >> kernel % 64 & 1);
}

/* Makes the call of the driver or of a library for an operation (hdi_op_is_work), on the lane's
 * CUDA stream. */
hdcu_result hdi_issue(hdi_engine *engine, const hdi_stream *stream, const hdi_command *c);

/* ---- chains.c ---- */

/* Called by hd_open. */
void hdi_chains_start(hdi_engine *engine);

/* Reads a launch in the form that the driver takes, which points into itself and into the command.
 * False: no such kernel, since the command was overwritten. */
bool hdi_launch_read(hdi_device *device, const hdi_command *c, hdi_launch *out);

/* Makes more chains if lanes lack some, no lane has work, and the memory suffices. The lane `asks`
 * may have unissued work, whose first command is `next`. Both may be NULL. If the device is lost
 * afterwards, `chain_fatal` of the engine is the driver's code. */
void hdi_chains_provide(hdi_engine *engine, const hdi_stream *asks, const hdi_command *next);

/* Takes back chains that lanes did not use recently. True: some lanes have chains. */
bool hdi_chains_prune(hdi_engine *engine, int64_t now);

/* Called before a module is unloaded. `kernels`: one bit for each of the module's kernels.
 * Afterwards no executable graph uses the module's functions, and each of these kernels counts as
 * never seen to end. Any thread, with the device's context current. */
void hdi_chains_forget(hdi_engine *engine, const uint64_t kernels[HDI_KERNEL_WORDS]);

/* Called by hd_close. The engine is stopped. */
void hdi_chains_end(hdi_engine *engine, bool driver_usable);

/* ---- stream.c ---- */

typedef struct hdi_pass {
    int64_t now;
    bool progress;  /* the pass issued something, or saw something finished */
    bool in_flight; /* work is unfinished in some lane */
} hdi_pass;

/* Issues some of the lane's commands, and notices finished work. True: the lane could issue more
 * now. */
bool hdi_stream_visit(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass);

static inline void hdi_engine_count_some(_Atomic uint64_t *counter, uint64_t n)
{
    /* one writer; relaxed: a statistic */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline void hdi_engine_count(_Atomic uint64_t *counter)
{
    hdi_engine_count_some(counter, 1);
}

/* ---- progress.c: how far the device is in a lane ---- */

/* Determines how far the device is in the lane, and moves `done`. */
void hdi_stream_reap(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass);

/* Loses the device: fails all unfinished work. In a worker process, this function ends the process
 * instead. */
void hdi_engine_lose(hdi_engine *engine, int driver_code);

/* Fills in *cause with the command that ends at `end` (NULL: unknown) and the driver's code. */
void hdi_stream_blame(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c, uint64_t end, int code,
                      hdi_failure *cause);
/* Records that positions from..to failed because of stream->cause. */
void hdi_stream_record_failure(hdi_engine *engine, hdi_stream *stream, uint64_t from, uint64_t to);
/* Fails positions `from` to `to` of this lane, since they read a result of another lane that
 * failed. */
void hdi_stream_inherit(hdi_engine *engine, hdi_stream *stream, const hdi_failure *other, uint64_t from, uint64_t to);
/* Notes that all work up to `position` is issued, and that the device has no unfinished work of
 * this lane. */
static inline void hdi_stream_rest(hdi_engine *engine, hdi_stream *stream, uint64_t position)
{
    stream->passed = stream->signalled = position;
    /* otherwise the flag would keep an old position, whose low half would match a later position at
     * some time */
    atomic_store_explicit(&engine->device->channel.flags[stream->number].position, (uint32_t)position,
                          memory_order_relaxed);
}
/* Handles the failure of a driver call for the command that begins at `begin`. If the failure does
 * not make the device lost, the command had no effect. */
void hdi_stream_command_failed(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, uint64_t begin, int code);

/* Makes the device write the position once it finishes all work issued so far. */
void hdi_stream_signal(hdi_engine *engine, hdi_stream *stream);

/* Drains a lane of a lost device: the lane's work ends without success, up to its first unmet wait
 * for other work. True if the lane's `done` moved. A worker process never calls this, since it ends
 * at a loss. */
bool hdi_stream_drain(hdi_engine *engine, hdi_stream *stream);

/* ---- stream_waits.c: waits for other lanes ---- */

/* True if the lane exists. Otherwise the command was overwritten, and the device becomes lost. */
bool hdi_stream_lane_exists(hdi_engine *engine, uint32_t lane);

/* Handles a wait for a lane whose engine is in another process. This process cannot use events of
 * that engine. So the waiting lane goes on when the other lane's `done` reaches `target`. The
 * thread that moves `done` rings this engine's doorbell, even if the other device is lost. True if
 * `target` is already reached. */
bool hdi_stream_wait_host(hdi_engine *engine, hdi_lane_shared *other, uint32_t lane, uint64_t target);

/* Handles a WAIT. True if the lane may go on behind the WAIT. */
bool hdi_stream_wait(hdi_engine *engine, hdi_stream *stream, const hdi_command *c);

/* Handles a SOURCES: further results that the next operation reads. True if the lane may go on
 * behind the SOURCES. */
bool hdi_stream_sources(hdi_engine *engine, hdi_stream *stream, const hdi_command *c);

/* ---- event.c: events of a lane that others wait for ---- */

/* Records an event behind all work issued so far. */
void hdi_stream_record_event(hdi_engine *engine, hdi_stream *stream);
/* Cuts the lane: a wait for work issued before the cut will not wait for work issued after the cut.
 * `event`: also records an event for these waits. */
void hdi_stream_cut(hdi_engine *engine, hdi_stream *stream, bool event);
/* True if the lane was cut at or behind `position`. Then a waiter for `position` cannot use an
 * event behind work that is issued now. Then the waiter waits until the position is done. Any
 * thread may call it. */
static inline bool hdi_stream_is_cut_behind(const hdi_stream *other, uint64_t position)
{
    return atomic_load_explicit(&other->cut, memory_order_acquire) >= position;
}
/* Returns an event of another lane that marks the end of `position`; NULL: there is none. The event
 * is not recorded again before its release. Any thread may call it. */
hdcu_event hdi_stream_hold_event(hdi_stream *other, uint64_t position, int *held);
void hdi_stream_release_event(hdi_stream *other, int held);

/* ---- blocked.c ---- */

/* Called by hd_open, once the driver's number of queues is known. */
void hdi_blocked_start(hdi_engine *engine);
/* Notes that the stream is about to wait inside the driver for the target of the WAIT. False: too
 * many streams wait there. */
bool hdi_blocked_add(hdi_engine *engine, const hdi_stream *stream, const hdi_command *wait);

/* ---- program.c: the program's own work in a lane ---- */

/* Takes note of claims whose end a thread of the program wrote into the channel
 * (hdi_claim_end_unseen). Such a thread writes only while the engine has no work in the lane. */
void hdi_stream_catch_up(hdi_engine *engine, hdi_stream *stream, uint64_t head);
/* Handles a CLAIM, whose first slot is done when the work in front of it is done. If a result that
 * the claim reads failed, both slots of the claim fail. */
void hdi_stream_begin_claim(hdi_engine *engine, hdi_stream *stream);
/* Handles a CLAIMED. True once the program ended the claim. */
bool hdi_stream_end_claim(hdi_engine *engine, hdi_stream *stream, const hdi_command *c);
/* Makes a CALL. Records a failure that the program returned; returns a failure of the driver. */
hdcu_result hdi_stream_call(hdi_engine *engine, hdi_stream *stream, const hdi_command *c);

/* ---- engine.c ---- */

/* Makes the engine's side of a lane, which goes on from the channel's `done`. Any thread, once per
 * lane, before its first command. */
hdi_answer hdi_stream_make(hdi_engine *engine, uint32_t number, bool sticky_failure);

#endif
