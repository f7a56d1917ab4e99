/* scenario.h - what the sweeps run again and again while something fails: a program that uses most of the library, in a process of its own.
 *
 * Threads: the one that runs it. Locks: none.
 * Always: every status is looked at, and every byte that was read with HD_OK is compared. Nothing here allocates, so all failing calls
 * are the library's.
 */
#ifndef SWEEPS_SCENARIO_H
#define SWEEPS_SCENARIO_H

#include <stdbool.h>
#include <heddle.h>

enum { SCENARIO_DEVICES = 2 };

typedef struct scenario {
    bool tests_peers; /* set by the caller: also starts heddle-probe, which takes its time */
    bool only_losses; /* set by the caller: once it is open, only losses of devices make calls fail */
    hd_runtime *runtime;
    int failures; /* calls that did not succeed */
    int wrong;    /* of these: without a message, with a status that cannot be meant; and wrong bytes */
    int losses;   /* that hd_loss_next reported, in scenario_restart */
    bool lost;    /* a device was lost at some time */
} scenario;

/* Opens, works, loses a device where a worker drives it, restarts what is lost, and closes. `settings` follow those of the scenario. */
void scenario_run(scenario *s, const char *settings);

/* The parts of it, for tests that do something in between. False: nothing is open. */
bool scenario_open(scenario *s, const char *settings);
void scenario_work(scenario *s);
/* Waits until a worker that has ended counts as lost, and brings back what is lost. */
void scenario_restart(scenario *s);
/* All devices work again: what is wrong otherwise is noted. */
void scenario_check_devices(scenario *s);
void scenario_close(scenario *s);

/* Workers of the devices, 0: there is none. */
void scenario_workers(const scenario *s, int pids[SCENARIO_DEVICES]);

/* Notes what is wrong, on stderr. */
void scenario_wrong(scenario *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Runs it in a process of its own, which ends with exit(0) where all is in order. True: it did so; else how it ended is printed. One that
 * hangs is ended after some minutes. */
bool scenario_apart(void (*run)(const void *context), const void *context);

/* Which N a sweep tries: one in some; every one with HEDDLE_TEST_SWEEP=all, only N with HEDDLE_TEST_SWEEP=N. */
typedef struct scenario_choice {
    int first, step;
    bool single;
} scenario_choice;
scenario_choice scenario_choose(int one_in);

/* What this process has: to be compared with what it had. */
typedef struct scenario_things {
    int descriptors, threads, children;
} scenario_things;
scenario_things scenario_count(void);
/* Notes what is wrong when there is more than that, also after a while: what is closing needs a moment. */
void scenario_check_things(scenario *s, scenario_things before);

#endif
