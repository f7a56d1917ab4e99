/* spawn.h - programs of the library's own: where they are, starting one apart from the application, seeing it end.
 *
 * Threads: any. Locks: none.
 * Always: a program sees the descriptors that it is given, as 3, 4, ..., and standard error, and no other. With `prints` it
 * has standard output, too. It has none of the
 * application's signal settings. It is in a process group of its own. It must ask for its death with its parent's thread itself (hdi_program_begin).
 */
#ifndef HDI_PROCESS_SPAWN_H
#define HDI_PROCESS_SPAWN_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <heddle/status.h>

#define HDI_PROGRAM_DESCRIPTOR 3 /* the first that a program is given */
#define HDI_PROGRAM_DESCRIPTORS 2

/* The path of the program `name`. It is looked for, in this order:
 *   - where `value` of the option `option` points, and then nowhere else; empty: the option is not set
 *   - beside the library, or beside the program, where that has the library inside
 *   - where an installation has it, seen from there
 *   - in the folders of the record in that file (DT_RUNPATH), and where an installation has it, seen from these
 *   - where it was installed
 * `need`: what it is needed for, in the message, which is hd_open's. Errors: SYSTEM. */
hd_status hdi_program_find(const char *name, const char *option, const char *value, const char *need, char *out,
                           size_t bytes);

/* The same without an option. False, with the folders that were searched in `where`: no program to be trusted is there. No error is set. */
bool hdi_program_beside(const char *name, char *out, size_t bytes, char *where, size_t where_bytes);

/* place.c: the folder where programs of the library's own were installed. */
extern const char hdi_programs_place[];

typedef struct hdi_process {
    pid_t pid; /* 0: none */
    int pidfd; /* -1: none, also on kernels that have no such thing; readable when the process ended */
} hdi_process;

/* Moves a descriptor above those that a program starts with, so that putting one in its place never meets another. False: none is
 * left. */
bool hdi_spawn_lift(int *descriptor);

/* `arguments` end with NULL; `descriptors` are lifted ones, and stay the caller's. Returns errno. */
int hdi_spawn(const char *program, char *const arguments[], const int *descriptors, int n, bool prints,
              hdi_process *out);

/* Kills the process, also after the application has waited for it itself. */
void hdi_process_kill(const hdi_process *process);

/* What has happened to the process since the last look, as waitid has it (si_pid 0: nothing). Once it has ended this is its last look.
 * False: it is not a child of ours any more. */
bool hdi_process_look(const hdi_process *process, siginfo_t *info);

/* In the program: it is killed when the thread ends that started it. */
void hdi_program_begin(void);

#endif
