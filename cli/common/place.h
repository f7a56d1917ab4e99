/* place.h - where the tool's own files are: in the source tree, when it runs where it was built, or in an installation.
 *
 * Threads: any. Locks: none.
 * Always: an installed tool never looks into the tree that it was built from, which may have another owner by now.
 * Neither the name that it was called by nor the current folder decides anything.
 */
#ifndef CLI_COMMON_PLACE_H
#define CLI_COMMON_PLACE_H

#include <stdbool.h>
#include <stddef.h>

/* The folder `in_source` of the source tree; for an installed tool `from_tool`, seen from its own folder, or, if that is not there,
 * `installed`. NULL: there is no such place. False: none of them is there. */
bool place_find(const char *in_source, const char *from_tool, const char *installed, char *out, size_t bytes);

/* The path of a program of Heddle's own, found as the library finds heddle-worker. False, with the folders without it in `why`, which has
 * PLACE_WHY bytes: it is not there, or others may write it. */
enum { PLACE_WHY = 512 };
bool place_program(const char *name, char *out, size_t bytes, char *why);

#endif
