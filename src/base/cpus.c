/* cpus.c - see cpus.h for threads and locks. Everything is read from the system when it is asked for; nothing is kept. */
#include "base/cpus.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WORD_BITS = 8 * sizeof(unsigned long), LIST_BYTES = 16384 };

bool hdi_cpus_own(hdi_cpus *out)
{
    memset(out, 0, sizeof *out);
    return syscall(SYS_sched_getaffinity, 0, sizeof out->bits, out->bits) > 0;
}

bool hdi_cpus_stay(const hdi_cpus *cpus)
{
    return syscall(SYS_sched_setaffinity, 0, sizeof cpus->bits, cpus->bits) == 0;
}

/* One line of a file, without its end; false: it cannot be read. */
static bool read_line(const char *path, char *out, int bytes)
{
    FILE *file = fopen(path, "re");
    bool found = file && fgets(out, bytes, file);
    if (file) {
        fclose(file);
    }
    if (found) {
        out[strcspn(out, "\n")] = 0;
    }
    return found;
}

int hdi_numa_node(const char *bus_id)
{
    char path[96], lower[32], line[32];
    size_t n = strlen(bus_id);
    if (n >= sizeof lower) {
        return -1;
    }
    for (size_t i = 0; i <= n; i++) {
        lower[i] = bus_id[i] >= 'A' && bus_id[i] <= 'F' ? (char)(bus_id[i] - 'A' + 'a') : bus_id[i];
    }
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", lower);
    int node = -1;
    if (!read_line(path, line, sizeof line) || sscanf(line, "%d", &node) != 1) {
        return -1;
    }
    return node;
}

bool hdi_numa_cpus(int node, hdi_cpus *out)
{
    char path[64];
    char *list = node >= 0 ? malloc(LIST_BYTES) : NULL;
    if (!list) {
        return false;
    }
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    bool known = read_line(path, list, LIST_BYTES) && hdi_cpus_parse(list, out);
    free(list);
    return known;
}

bool hdi_cpus_parse(const char *list, hdi_cpus *out)
{
    memset(out, 0, sizeof *out);
    for (const char *at = list; *at;) {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (end == at) {
            return false;
        }
        if (*end == '-') {
            at = end + 1;
            last = strtoul(at, &end, 10);
            if (end == at) {
                return false;
            }
        }
        if (first > last || last >= HDI_CPUS_MOST || (*end && *end != ',')) {
            return false;
        }
        for (unsigned long cpu = first; cpu <= last; cpu++) {
            out->bits[cpu / WORD_BITS] |= 1ul << cpu % WORD_BITS;
        }
        at = *end ? end + 1 : end;
    }
    return true;
}

bool hdi_cpus_common(const hdi_cpus *a, const hdi_cpus *b, hdi_cpus *out)
{
    unsigned long any = 0;
    for (size_t i = 0; i < sizeof out->bits / sizeof out->bits[0]; i++) {
        out->bits[i] = a->bits[i] & b->bits[i];
        any |= out->bits[i];
    }
    return any != 0;
}
