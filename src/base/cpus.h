/* cpus.h - which processors this process may use, and which of them are near a PCI device.
 *
 * Threads: any. Locks: none. What the system does not report is "unknown", never a failure.
 */
#ifndef HDI_BASE_CPUS_H
#define HDI_BASE_CPUS_H

#include <stdbool.h>
#include <stdint.h>

#define HDI_CPUS_MOST 8192 /* more than any kernel is built for */

/* A set of processors, a bit each, laid out as the kernel's masks are. */
typedef struct hdi_cpus {
    unsigned long bits[HDI_CPUS_MOST / (8 * sizeof(unsigned long))];
} hdi_cpus;

/* The processors that the calling thread may run on. False: unknown. */
bool hdi_cpus_own(hdi_cpus *out);

/* Lets the calling thread run only there; false: the system refused. */
bool hdi_cpus_stay(const hdi_cpus *cpus);

/* The NUMA node of a PCI device ("0000:1b:00.0"), -1: unknown. */
int hdi_numa_node(const char *bus_id);

/* The processors of a NUMA node. False: unknown. */
bool hdi_numa_cpus(int node, hdi_cpus *out);

/* "0-3,8" as the system writes such lists. False: it is not one. */
bool hdi_cpus_parse(const char *list, hdi_cpus *out);

/* Those in both; false: there are none. */
bool hdi_cpus_common(const hdi_cpus *a, const hdi_cpus *b, hdi_cpus *out);

#endif
