/* bench.c - `heddle bench`: becomes the program heddle-bench, which is an optional part of the
 * installation.
 *
 * Threads: the program's first. Locks: none.
 * Always: the process is replaced, so output, signals and the exit status belong to the benchmark.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>
#include "cli/cli.h"
#include "cli/common/place.h"

#define PROGRAM "heddle-bench"

int cli_bench(int argc, char **argv)
{
    char path[PATH_MAX], why[PLACE_WHY];
    (void)argc;
    if (!cli_place_program(PROGRAM, path, sizeof(path), why)) {
        cli_complain("bench", PROGRAM " is not in %s; build it with -DHEDDLE_BENCH=ON", why);
        return CLI_FAILED;
    }
    argv[0] = PROGRAM;
    execv(path, argv);
    cli_complain("bench", "%s cannot be started (%s)", path, strerror(errno));
    return CLI_FAILED;
}
