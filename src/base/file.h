/* file.h - a file replaced as a whole: a process that reads it finds the old content or the new one. One that is killed meanwhile leaves nothing.
 *
 * Threads: any; the calling thread's signal mask changes meanwhile (base/quiet.h). Locks: none. Several may replace one file at the same
 * time: the last one's content stays.
 */
#ifndef HDI_BASE_FILE_H
#define HDI_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* False with errno: the file is as it was. Where the file system has no files without a name (NFS), a kill may leave a file beside
 * it. That file is called ".NAME.XXXXXX", NAME being the file's own name. */
bool hdi_file_replace(const char *path, const void *content, size_t bytes, mode_t mode);

/* Deletes what was left so beside `path` more than a minute ago. */
void hdi_file_sweep(const char *path);

#endif
