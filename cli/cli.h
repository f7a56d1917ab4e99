/* cli.h - the commands of the `heddle` tool.
 *
 * A command is one file with one function. It gets the command line from its own name on (argv[0] is "info"),
 * understands --help, and returns the exit status.
 * Threads: commands run on the program's first thread. Locks: none.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include "cli/common/command.h"

int cli_info(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_cc(int argc, char **argv);
int cli_p2p(int argc, char **argv);
int cli_trace(int argc, char **argv);

/* `heddle info --memory`: of one process, or, pid 0, of all of this user. The exit status. */
int cli_memory(int pid, bool json);

#endif
