/* system.h - what /sys and /proc have of devices and the bus, as values: IOMMU, bridges, links, windows, versions.
 *
 * `root` is put before /sys and /proc: "" but for tests. A bus id may have capitals ("0000:1B:00.0").
 * Threads: any. Locks: none.
 * Always: a file that cannot be read makes its own value unknown, and no other. Nothing is changed. Nothing here fails.
 */
#ifndef CLI_COMMON_SYSTEM_H
#define CLI_COMMON_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SYSTEM_BUS_ID = 32, SYSTEM_PATH_BYTES = 512, SYSTEM_CHAIN_MAX = 16 };

/* The first line of a file; false when there is none. */
bool system_read_line(const char *root, char *out, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The first line that has the text; false when none has, or the file cannot be read (*readable is false). */
bool system_find_line(const char *root, const char *path, const char *text, char *out, size_t bytes, bool *readable);

/* The whole number in a file's first line; `otherwise` when there is none. */
long long system_read_number(const char *root, long long otherwise, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A folder's entries but for hidden ones; -1: there is no such folder. */
int system_count_entries(const char *root, const char *path);

bool system_exists(const char *root, const char *path);

/* Whether the name is a bus id, such as "0000:1b:00.0". */
bool system_is_bus_id(const char *name, size_t length);

/* The bus id as /sys has it: without capitals, and with a domain of four digits. */
void system_bus_id(const char *given, char out[SYSTEM_BUS_ID]);

/* The version of libcuda in this process, and the line of the kernel module's version. False: "" is out. */
bool system_read_library(const char *root, char *out, size_t bytes);
bool system_read_module(const char *root, char *out, size_t bytes);

/* Whether a version is in the line, as a word. */
bool system_has_version(const char *line, const char *version);

/* ---- IOMMU ---- */

typedef enum system_iommu {
    SYSTEM_IOMMU_UNKNOWN, /* no group, and /sys/class/iommu cannot be read */
    SYSTEM_IOMMU_OFF,
    SYSTEM_IOMMU_UNGROUPED, /* there is one, but the device is in none of its groups */
    SYSTEM_IOMMU_UNTYPED,   /* the type of its group cannot be read */
    SYSTEM_IOMMU_TYPED      /* `type`: "identity" passes addresses through, others translate */
} system_iommu;

system_iommu system_read_iommu(const char *root, const char *bus_id, char group[64], char type[64]);

/* ---- links and windows ---- */

typedef struct system_link {
    double speed, max_speed; /* GT/s; 0: unknown */
    int width, max_width;    /* lanes; 0: unknown */
} system_link;

/* False: something of it is unknown. */
bool system_read_link(const char *root, const char *bus_id, system_link *out);

/* Bytes of the window through which others see the device's memory: its second base address register. 0: unknown. */
uint64_t system_read_window(const char *root, const char *bus_id);

/* ---- what is above a device ---- */

/* The bridges above a device, the one next to the host first, without the device itself. */
typedef struct system_chain {
    char root[SYSTEM_BUS_ID]; /* "pci0000:17" */
    char bridge[SYSTEM_CHAIN_MAX][SYSTEM_BUS_ID];
    int n; /* -1: not known */
} system_chain;

void system_read_chain(const char *root, const char *bus_id, system_chain *out);

enum { SYSTEM_ACS_REDIRECT = 0x1c }; /* requests, completions, and what comes from below, sent up */

/* The control word of a bridge's Access Control Services; -1: it cannot be read, 0 also: it has none. */
int system_read_acs(const char *root, const char *bridge);

/* What lies between two devices on the bus. */
typedef enum system_path {
    SYSTEM_PATH_UNKNOWN,
    SYSTEM_PATH_SAME_SWITCH, /* the same root port: a switch below it has both */
    SYSTEM_PATH_SAME_ROOT,   /* the same host bridge */
    SYSTEM_PATH_OTHER_ROOT   /* two host bridges */
} system_path;

system_path system_path_between(const system_chain *a, const system_chain *b);
const char *system_path_text(system_path path);

#endif
