/* place.h - finds the tool's own files: in the source tree, if the tool runs in its build folder,
 * or in an installation.
 *
 * Threads: any. Locks: none.
 * Always: an installed tool never searches the tree that it was built from, because someone else
 * may own it by now. Neither argv[0] nor the current folder matters.
 */
#ifndef CLI_COMMON_PLACE_H
#define CLI_COMMON_PLACE_H

#include <stdbool.h>
#include <stddef.h>

/* Finds a folder of the tool. For a tool in the source tree the folder is `in_source`. For an
 * installed tool it is `from_tool`, relative to the tool's folder, or else `installed`. A candidate
 * may be NULL. Returns false if no candidate exists. */
bool cli_place_find(const char *in_source, const char *from_tool, const char *installed, char *out, size_t bytes);

/* Finds one of Heddle's own programs, as the library finds heddle-worker. False: the program is
 * missing, or others may write it. In that case `why` lists the searched folders, in PLACE_WHY
 * bytes. */
enum { PLACE_WHY = 512 };
bool cli_place_program(const char *name, char *out, size_t bytes, char *why);

#endif
