/* file.h - writes to files and pipes so that errors become errno and not a signal, and replaces
 * files as a whole.
 *
 * By default a broken pipe (SIGPIPE) and a limit on the size of files (SIGXFSZ, ulimit -f) end the
 * program. The library must not cause such an end. The limit also holds for memory files.
 *
 * Threads: any; the calling thread's signal mask changes meanwhile. Locks: none.
 * Blocking: hdi_write_quietly while the pipe is full, until the deadline.
 */
#ifndef HDI_BASE_FILE_H
#define HDI_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- without signals ---- */

/* ftruncate without signals. */
int hdi_quiet_resize(int descriptor, off_t bytes);

/* Writes all of the text. A regular file gets it in one call, so that lines of several programs do
 * not mix. False: the write failed, with errno; ETIMEDOUT after the deadline (hdi_clock_ns). */
bool hdi_write_quietly(int descriptor, const char *text, size_t length, int64_t deadline);

/* ---- replaced as a whole ----
 *
 * A process that reads such a file finds the old content or the new one. If the replacing process
 * is killed, it leaves nothing behind, except on some file systems (hdi_file_replace). Several
 * processes may replace one file at the same time: the content of the last process stays. */

/* Replaces the file's content. False, with errno: the file is unchanged. If the file system does
 * not support unnamed files (NFS), a killed process may leave a file ".NAME.XXXXXX" in the same
 * folder. NAME is the file's own name. */
bool hdi_file_replace(const char *path, const void *content, size_t bytes, mode_t mode);

/* Reads a file that only this user can write, of 1 to `most` bytes. *out ends with a zero; free it.
 * False: others can write the file, its size is out of range, it changed meanwhile, or there is no
 * memory. */
bool hdi_file_read_own(const char *path, size_t most, char **out, size_t *bytes);

/* Deletes leftovers of hdi_file_replace(path) that are older than a minute. */
void hdi_file_sweep(const char *path);

#endif
