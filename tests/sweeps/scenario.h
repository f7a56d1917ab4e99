/* scenario.h - a program that uses most of the library, in a process of its own. The sweeps repeat
 * it while something fails.
 *
 * Threads: the one that runs it. Locks: none.
 * Always: it checks every status, and compares every byte read with HD_OK. It allocates nothing
 * itself, so all failing calls are the library's calls.
 */
#ifndef SWEEPS_SCENARIO_H
#define SWEEPS_SCENARIO_H

#include <stdbool.h>
#include <heddle.h>

enum { SCENARIO_DEVICES = 2 };

typedef struct scenario {
    bool tests_peers; /* set by the caller: also runs heddle-probe, which is slow */
    /* set by the caller: once it is open, only losses of devices make calls fail */
    bool only_losses;
    hd_runtime *runtime;
    int failures; /* calls that failed */
    /* mistakes: failures without a message or with an impossible status, wrong bytes */
    int wrong;
    int losses; /* reported by hd_loss_next in scenario_restart */
    bool lost;  /* a device was lost at any time */
} scenario;

/* Opens, works, loses a device if a worker drives it, restarts lost devices, and closes. `settings`
 * follow those of the scenario. */
void scenario_run(scenario *s, const char *settings);

/* Its parts, for tests that act in between. False: nothing is open. */
bool scenario_open(scenario *s, const char *settings);
void scenario_work(scenario *s);
/* Waits until an ended worker counts as lost, and restarts lost devices. */
void scenario_restart(scenario *s);
/* Records a mistake unless all devices work again. */
void scenario_check_devices(scenario *s);
void scenario_close(scenario *s);

/* Sets the workers of the devices; 0: none. */
void scenario_workers(const scenario *s, int pids[SCENARIO_DEVICES]);

/* Records a mistake, and prints it on stderr. */
void scenario_wrong(scenario *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Runs it in a process of its own, which ends with exit(0) if everything is right. Returns true
 * then; otherwise prints how the process ended. A process that hangs is killed after some
 * minutes. */
bool scenario_apart(void (*run)(const void *context), const void *context);

/* The values of N that a sweep tries: one in some, all with HEDDLE_TEST_SWEEP=all, or only N with
 * HEDDLE_TEST_SWEEP=N. */
typedef struct scenario_choice {
    int first, step;
    bool single;
} scenario_choice;
scenario_choice scenario_choose(int one_in);

/* Resources of this process, to compare with earlier ones. */
typedef struct scenario_things {
    int descriptors, threads, children;
} scenario_things;
scenario_things scenario_count(void);
/* Records a mistake if there is more than before, also after a while, since closing takes a
 * moment. */
void scenario_check_things(scenario *s, scenario_things before);

#endif
