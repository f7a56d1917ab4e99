/* machine.h - facts about the machine, for `heddle info` and for the record that goes with every
 * measurement.
 *
 * Threads: any. Locks: none. No function fails; facts that the system does not provide are 0 or "".
 * No function reads data that identifies the machine's owner: no host name, no user, no paths.
 */
#ifndef CLI_COMMON_MACHINE_H
#define CLI_COMMON_MACHINE_H

#include <heddle.h>
#include <stdio.h>
#include "base/json.h"

typedef struct machine_facts {
    char cpu[128];  /* model name */
    int processors; /* the number of processors that this process may use */
    uint64_t memory_bytes;
    int numa_nodes;
    char system[256]; /* "Linux 6.1.0 x86_64" */
} machine_facts;

void cli_machine_read(machine_facts *out);

/* "GPU-01234567-89ab-cdef-0123-456789abcdef" */
void cli_machine_uuid_text(const uint8_t uuid[16], char out[48]);

/* "13.0" for 13000 */
void cli_machine_driver_version_text(int version, char out[24]);

/* "2026-01-31T12:00:00Z", from seconds since 1970 */
void cli_machine_date_text(double seconds, char out[32]);

/* Both functions write an object as the value of the last key. cli_machine_json writes the
 * machine's facts. cli_machine_runtime_json writes driver, placement and devices. */
void cli_machine_json(hdi_json *j);
void cli_machine_runtime_json(hdi_json *j, hd_runtime *runtime);

/* Writes an array of all options with the runtime's values, or with the defaults if `runtime` is
 * NULL. */
void cli_machine_options_json(hdi_json *j, const hd_runtime *runtime);

/* Writes the whole output of `heddle info --json`. If no runtime could be opened, `runtime` is NULL
 * and `failure` is the reason. */
void cli_machine_info_json(FILE *out, hd_runtime *runtime, const char *failure);

#endif
