/* lanes.h - `heddle bench lanes`: one program drives every GPU, compared with plain driver calls from threads and
 * processes.
 *
 * The experiment: the product of a 320 x 320 and a 320 x 640 matrix of floats on every device at once, checked against
 * a reference in double precision on random data. Every way to drive the devices is one row; all rows are measured in
 * one run, interleaved in rounds, with the same discipline (batches of launches, at most two in flight).
 * Threads: lanes_run is called on the program's first thread and makes the threads and worker processes that it needs;
 * when it returns, they have ended. Locks: none that callers see.
 */
#ifndef BENCH_LANES_H
#define BENCH_LANES_H

#include <stdbool.h>
#include <stdio.h>

typedef struct lanes_options {
    int devices;           /* the first so many; 0: all */
    double seconds;        /* measuring time of all rows together; 0: by the kind of device */
    int rounds;            /* 0: by the kind of device */
    bool quick;            /* fewer rounds, a quarter of the time */
    bool json_on_output;   /* JSON to `output` instead of the table */
    const char *json_file; /* JSON into this file as well; NULL: no file */
    FILE *output;
    char *const *command; /* the command line, for the record */
    int command_count;
    /* Called before each step. `stage` is in words and changes seldom, `item` is what is measured now, `done` goes from
     * 0 to 1; stage NULL: nothing more comes, the output follows. */
    void (*progress)(void *context, const char *stage, const char *item, double done);
    void *context;
} lanes_options;

/* Runs the experiment and prints it. 0: measured and verified; 1: something failed or a result was wrong (one line on
 * stderr says what). Whether the goals are reached does not count. */
int lanes_run(const lanes_options *options);

/* What the experiment is, and how to read it: text for the help. */
extern const char lanes_help[];

/* A worker process's side: its command line is "heddle bench lanes", this word, and `arguments`. */
#define LANES_WORKER "--worker"
int lanes_worker(int count, char *const *arguments);

#endif
