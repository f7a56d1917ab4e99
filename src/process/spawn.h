/* spawn.h - helper programs of the library: finds one, starts it apart from the application, and
 * watches it end.
 *
 * Threads: any. Locks: none.
 * Always: a program gets only the given descriptors, as 3, 4, ..., and standard error. With
 * `prints` it gets standard output, too. It inherits none of the application's signal settings. It
 * runs in a separate process group. It must itself ask to be killed when its parent's thread ends
 * (hdi_program_begin).
 */
#ifndef HDI_PROCESS_SPAWN_H
#define HDI_PROCESS_SPAWN_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <heddle/status.h>

#define HDI_PROGRAM_DESCRIPTOR 3 /* the first descriptor that a program receives */
#define HDI_PROGRAM_DESCRIPTORS 2

/* The path of the program `name`. Places, in this order:
 *   - the path `value` of the option `option`, and then no other place; empty: the option is not
 *     set
 *   - beside the library's file, or beside the program that contains the library
 *   - the place in an installation, as seen from that folder
 *   - the folders in the record of that file (DT_RUNPATH), and the place in an installation, as
 *     seen from these folders
 *   - the place of installation
 * `need`: the purpose of the program, for a message of hd_open. Errors: SYSTEM. */
hd_status hdi_program_find(const char *name, const char *option, const char *value, const char *need, char *out,
                           size_t bytes);

/* hdi_program_find without an option. False: no trusted program was found; `where` lists the
 * searched folders. Sets no error. */
bool hdi_program_beside(const char *name, char *out, size_t bytes, char *where, size_t where_bytes);

/* place.c: the folder where the helper programs were installed. */
extern const char hdi_programs_place[];

typedef struct hdi_process {
    pid_t pid; /* 0: none */
    /* readable when the process ended; -1: there is none, as on kernels without pidfds */
    int pidfd;
} hdi_process;

/* Moves a descriptor above those that a program starts with, so that placing one never overwrites
 * another. False: none is left. */
bool hdi_spawn_lift(int *descriptor);

/* Starts a program. `arguments` end with NULL. `descriptors` were lifted, and the caller keeps
 * them. Returns errno. */
int hdi_spawn(const char *program, char *const arguments[], const int *descriptors, int n, bool prints,
              hdi_process *out);

/* Kills the process, even if the application reaped it. */
void hdi_process_kill(const hdi_process *process);

/* Reports the changes of the process since the last call, in the form of waitid (si_pid 0: none).
 * After the end of the process no further call is allowed. False: the process is no longer a child
 * of this process. */
bool hdi_process_look(const hdi_process *process, siginfo_t *info);

/* Call it at the beginning of a program. From then on, the system kills the program when the thread
 * that started it ends. */
void hdi_program_begin(void);

#endif
