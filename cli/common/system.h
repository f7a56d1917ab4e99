/* system.h - reads facts of devices and the bus from /sys and /proc: IOMMU, bridges, links,
 * windows, versions.
 *
 * The functions put `root` before /sys and /proc; outside of tests it is "". A bus id may contain
 * capitals ("0000:1B:00.0").
 * Threads: any. Locks: none.
 * Always: an unreadable file makes only its own value unknown. No function changes the system, and
 * no function fails.
 */
#ifndef CLI_COMMON_SYSTEM_H
#define CLI_COMMON_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SYSTEM_BUS_ID = 32, SYSTEM_PATH_BYTES = 512, SYSTEM_CHAIN_MAX = 16 };

/* Reads the first line of a file. False if the file cannot be read. */
bool cli_system_read_line(const char *root, char *out, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Finds the first line that contains the text. False if no line contains it, or if the file cannot
 * be read (*readable is false). */
bool cli_system_find_line(const char *root, const char *path, const char *text, char *out, size_t bytes,
                          bool *readable);

/* Returns the whole number in a file's first line, or `otherwise`. */
long long cli_system_read_number(const char *root, long long otherwise, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the number of entries of a folder, without hidden ones; -1: no such folder. */
int cli_system_count_entries(const char *root, const char *path);

bool cli_system_exists(const char *root, const char *path);

/* True if the name is a bus id, such as "0000:1b:00.0". */
bool cli_system_is_bus_id(const char *name, size_t length);

/* Writes the bus id in the form of /sys: lower case, and a domain of four digits. */
void cli_system_bus_id(const char *given, char out[SYSTEM_BUS_ID]);

/* cli_system_read_library reads the version of libcuda in this process. cli_system_read_module
 * reads the line with the kernel module's version. False: `out` is "". */
bool cli_system_read_library(const char *root, char *out, size_t bytes);
bool cli_system_read_module(const char *root, char *out, size_t bytes);

/* True if the line contains the version as a separate word. */
bool cli_system_has_version(const char *line, const char *version);

/* ---- IOMMU ---- */

typedef enum system_iommu {
    SYSTEM_IOMMU_UNKNOWN, /* no group, and /sys/class/iommu cannot be read */
    SYSTEM_IOMMU_OFF,
    SYSTEM_IOMMU_UNGROUPED, /* the device is in no IOMMU group, though groups exist */
    SYSTEM_IOMMU_UNTYPED,   /* the type of the device's group cannot be read */
    /* `type`: "identity" passes addresses through, and other types translate them */
    SYSTEM_IOMMU_TYPED
} system_iommu;

system_iommu cli_system_read_iommu(const char *root, const char *bus_id, char group[64], char type[64]);

/* ---- links and windows ---- */

typedef struct system_link {
    double speed, max_speed; /* GT/s; 0: unknown */
    int width, max_width;    /* lanes; 0: unknown */
} system_link;

/* Reads the link of a device. False if any value is unknown. */
bool cli_system_read_link(const char *root, const char *bus_id, system_link *out);

/* Returns the size of the window through which other devices see the memory of this device. The
 * window is the second base address register. 0: unknown. */
uint64_t cli_system_read_window(const char *root, const char *bus_id);

/* ---- bridges above a device ---- */

/* The bridges above a device, from the host down, without the device itself. */
typedef struct system_chain {
    char root[SYSTEM_BUS_ID]; /* "pci0000:17" */
    char bridge[SYSTEM_CHAIN_MAX][SYSTEM_BUS_ID];
    int n; /* -1: unknown */
} system_chain;

void cli_system_read_chain(const char *root, const char *bus_id, system_chain *out);

/* the bits by which a bridge redirects requests, completions and traffic from below upwards */
enum { SYSTEM_ACS_REDIRECT = 0x1c };

/* Returns the control word of a bridge's Access Control Services. 0: the bridge lacks these
 * services. -1: the word cannot be read. */
int cli_system_read_acs(const char *root, const char *bridge);

/* The kind of path between two devices on the bus. */
typedef enum system_path {
    SYSTEM_PATH_UNKNOWN,
    SYSTEM_PATH_SAME_SWITCH, /* both are below the same root port, and a switch connects them */
    SYSTEM_PATH_SAME_ROOT,   /* the same host bridge */
    SYSTEM_PATH_OTHER_ROOT   /* two host bridges */
} system_path;

system_path cli_system_path_between(const system_chain *a, const system_chain *b);
const char *cli_system_path_text(system_path path);

#endif
