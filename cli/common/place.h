/* place.h - finds the tool's own files: in the source tree, if the tool runs in its build folder,
 * or in an installation.
 *
 * Threads: any. Locks: none.
 * Always: an installed tool never searches the source tree that it was built from, because someone
 * else may own that tree by now. Neither argv[0] nor the current folder matters.
 */
#ifndef CLI_COMMON_PLACE_H
#define CLI_COMMON_PLACE_H

#include <stdbool.h>
#include <stddef.h>

/* Finds a folder of the tool. For a tool in the source tree, this is `in_source`. For an installed
 * tool, it is `from_tool`, relative to the tool's folder, or `installed` if `from_tool` does not
 * exist. Each of the three may be NULL. Returns false if the folder does not exist. */
bool cli_place_find(const char *in_source, const char *from_tool, const char *installed, char *out, size_t bytes);

/* Finds one of Heddle's own programs, as the library finds heddle-worker. False: the program is
 * missing, or other users may write it. Then `why` lists the folders that were searched, in
 * PLACE_WHY bytes. */
enum { PLACE_WHY = 512 };
bool cli_place_program(const char *name, char *out, size_t bytes, char *why);

#endif
