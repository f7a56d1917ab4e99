/* cli.h - the commands of the `heddle` tool.
 *
 * Each command is one file with one entry function. The function receives the command line from the
 * command's own name on (argv[0] is "info"). It handles --help and returns the exit status.
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
int cli_doctor(int argc, char **argv);
int cli_report(int argc, char **argv);

/* Runs `heddle info --memory` for one process or, if pid is 0, for all processes of this user.
 * `json`: prints JSON instead of text. `json_file`: also writes JSON into this file. Returns the
 * exit status. */
int cli_memory(int pid, bool json, const char *json_file);

#endif
