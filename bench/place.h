/* place.h - where the tool's own files are: in the source tree, when it runs where it was built, or in an installation.
 *
 * Any thread; no locks. What always holds: an installed tool never looks into the tree that it was built from, which may be somebody
 * else's by now, and neither does what it was called, nor the current folder, decide anything.
 */
#ifndef BENCH_PLACE_H
#define BENCH_PLACE_H

#include <stdbool.h>
#include <stddef.h>

/* The folder `in_source` of the source tree; for an installed tool `from_tool`, seen from its own folder, or, if that is not there,
 * `installed`. NULL: there is no such place. False: none of them is there. */
bool place_find(const char *in_source, const char *from_tool, const char *installed, char *out, size_t bytes);

#endif
