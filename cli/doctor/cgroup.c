/* cgroup.c - facts about the control groups of this process: the limits on its processors and
 * memory.
 *
 * The limits of parent groups also apply, so the smallest limit counts. In a container the path of
 * the group may be its path on the host. Then the mounted folder is the group itself.
 * Threads: one at a time. Locks: none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/doctor/collect.h"

#define MOUNT "/sys/fs/cgroup"

enum { GROUP_BYTES = 256 };

/* A version 1 group without a limit reports almost the largest number, rounded to pages. */
#define UNLIMITED ((long long)1 << 60)

/* Reads the path of the group from /proc/self/cgroup: the path in version 2 ("0::/x"), or the path
 * for this controller in version 1 ("4:memory:/x"). */
static bool doctor_cgroup_find_group(const char *root, const char *controller, char out[GROUP_BYTES])
{
    char path[SYSTEM_PATH_BYTES], line[512];
    bool found = false;
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) {
            continue;
        }
        *group++ = 0;
        size_t length = strlen(controller);
        for (char *at = ++names; !found && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
            found = strncmp(at, controller, length) == 0 && (at[length] == 0 || at[length] == ',');
        }
        snprintf(out, GROUP_BYTES, "%s", strcmp(group, "/") == 0 ? "" : group);
    }
    if (file) {
        fclose(file);
    }
    return found;
}

/* The group's limit in thousandths of a processor; -1: no limit. */
static long long doctor_cgroup_cpu_limit(const char *root, const char *folder, const char *group, bool second)
{
    char line[64];
    long long quota = -1, period = 100000;
    if (second) { /* "200000 100000", or "max 100000" */
        bool got = cli_system_read_line(root, line, sizeof(line), "%s%s/cpu.max", folder, group);
        if (!got || sscanf(line, "%lld %lld", &quota, &period) < 1) {
            return -1;
        }
    } else {
        quota = cli_system_read_number(root, -1, "%s%s/cpu.cfs_quota_us", folder, group);
        period = cli_system_read_number(root, period, "%s%s/cpu.cfs_period_us", folder, group);
    }
    return quota > 0 && quota < UNLIMITED / 1000 && period > 0 ? quota * 1000 / period : -1;
}

static long long doctor_cgroup_memory_limit(const char *root, const char *folder, const char *group, bool second)
{
    const char *name = second ? "memory.max" : "memory.limit_in_bytes";
    long long bytes = cli_system_read_number(root, -1, "%s%s/%s", folder, group, name);
    return bytes >= 0 && bytes < UNLIMITED ? bytes >> 20 : -1;
}

/* The smallest limit of the group and its parents. */
static void doctor_cgroup_read_limit(const char *root, const char *controller, const char *key,
                                     long long (*limit)(const char *root, const char *folder, const char *group,
                                                        bool second),
                                     doctor_snapshot *s)
{
    char group[GROUP_BYTES], folder[64];
    bool second =
        cli_system_exists(root, MOUNT "/cgroup.controllers") || cli_system_exists(root, MOUNT "/cgroup.procs");
    snprintf(folder, sizeof(folder), MOUNT "%s%s", second ? "" : "/", second ? "" : controller);
    if (!doctor_cgroup_find_group(root, second ? "" : controller, group) || !cli_system_exists(root, folder)) {
        doctor_miss(s, "/proc/self/cgroup or " MOUNT " does not show the group of this process", "process.%s", key);
        return;
    }
    long long least = -1;
    for (;;) {
        long long is = limit(root, folder, group, second);
        least = is >= 0 && (least < 0 || is < least) ? is : least;
        char *slash = strrchr(group, '/');
        if (!slash) {
            break;
        }
        *slash = 0;
    }
    if (least >= 0) {
        doctor_put_number(s, least, "process.%s", key);
    } else {
        doctor_put(s, "none", "process.%s", key);
    }
}

void doctor_read_cgroup(const char *root, doctor_snapshot *s)
{
    doctor_cgroup_read_limit(root, "cpu", "cpu_limit_milli", doctor_cgroup_cpu_limit, s);
    doctor_cgroup_read_limit(root, "memory", "memory_limit_mib", doctor_cgroup_memory_limit, s);
}
