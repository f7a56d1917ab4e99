/* own_file.h - which file the library's own code lies in: the program, or a shared object.
 *
 * Threads: any. Locks: the dynamic loader's. Always: what the program was called (argv[0]), and the current folder, decide nothing.
 */
#ifndef HDI_BASE_OWN_FILE_H
#define HDI_BASE_OWN_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* The name that the loader has for the shared object with this code: the one it was opened by. It may be relative to a folder that was
 * the current one then. NULL: it is the program itself. */
const char *hdi_own_file_name(void);

/* Where the libraries are by that file's own record (DT_RUNPATH): folders with colons between them, "" without a record. False: they
 * are longer than `bytes`. */
bool hdi_own_file_runpath(char *out, size_t bytes);

/* The absolute path of that file, links resolved; of the program from /proc/self/exe. False: it cannot be found out. */
bool hdi_own_file_path(char *out, size_t bytes);

#endif
