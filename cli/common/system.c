/* system.c - reads the values of system.h, each with a small function.
 *
 * Threads: any. Locks: none.
 */
#include "cli/common/system.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CONFIG_BYTES = 4096,
    CONFIG_EXTENDED = 0x100, /* first extended capability */
    CAPABILITY_ACS = 0x000d, /* PCI Express Base Specification, Access Control Services */
    ACS_CONTROL = 6          /* offset of its control word */
};

#define DEVICES "/sys/bus/pci/devices/"

/* ---- files ---- */

static void cli_system_put_path(char out[SYSTEM_PATH_BYTES], const char *root, const char *format, va_list arguments)
{
    int used = snprintf(out, SYSTEM_PATH_BYTES, "%s", root);
    if (used >= 0 && used < SYSTEM_PATH_BYTES) {
        vsnprintf(out + used, SYSTEM_PATH_BYTES - (size_t)used, format, arguments);
    }
}

static void cli_system_make_path(char out[SYSTEM_PATH_BYTES], const char *root, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void cli_system_make_path(char out[SYSTEM_PATH_BYTES], const char *root, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    cli_system_put_path(out, root, format, arguments);
    va_end(arguments);
}

static bool cli_system_read_first_line(const char *path, char *out, size_t bytes)
{
    FILE *file = fopen(path, "re");
    bool got = file && fgets(out, (int)bytes, file);
    if (got) {
        out[strcspn(out, "\n")] = 0;
    }
    if (file) {
        fclose(file);
    }
    return got;
}

bool cli_system_read_line(const char *root, char *out, size_t bytes, const char *format, ...)
{
    char path[SYSTEM_PATH_BYTES];
    va_list arguments;
    va_start(arguments, format);
    cli_system_put_path(path, root, format, arguments);
    va_end(arguments);
    return cli_system_read_first_line(path, out, bytes);
}

long long cli_system_read_number(const char *root, long long otherwise, const char *format, ...)
{
    char path[SYSTEM_PATH_BYTES], line[64], *end = line;
    va_list arguments;
    va_start(arguments, format);
    cli_system_put_path(path, root, format, arguments);
    va_end(arguments);
    long long value = cli_system_read_first_line(path, line, sizeof(line)) ? strtoll(line, &end, 0) : 0;
    return end > line ? value : otherwise;
}

bool cli_system_find_line(const char *root, const char *path, const char *text, char *out, size_t bytes, bool *readable)
{
    char whole[SYSTEM_PATH_BYTES];
    bool found = false;
    cli_system_make_path(whole, root, "%s", path);
    FILE *file = fopen(whole, "re");
    *readable = file != NULL;
    while (file && !found && fgets(out, (int)bytes, file)) {
        found = strstr(out, text) != NULL;
    }
    if (found) {
        out[strcspn(out, "\n")] = 0;
    }
    if (file) {
        fclose(file);
    }
    return found;
}

int cli_system_count_entries(const char *root, const char *path)
{
    char whole[SYSTEM_PATH_BYTES];
    cli_system_make_path(whole, root, "%s", path);
    DIR *directory = opendir(whole);
    int count = 0;
    if (!directory) {
        return -1;
    }
    for (struct dirent *entry; (entry = readdir(directory));) {
        count += entry->d_name[0] != '.';
    }
    closedir(directory);
    return count;
}

bool cli_system_exists(const char *root, const char *path)
{
    char whole[SYSTEM_PATH_BYTES];
    cli_system_make_path(whole, root, "%s", path);
    return access(whole, F_OK) == 0;
}

/* ---- names and versions ---- */

bool cli_system_is_bus_id(const char *name, size_t length)
{
    return length >= 12 && length < SYSTEM_BUS_ID && name[length - 2] == '.' && name[length - 5] == ':' &&
           name[length - 8] == ':';
}

void cli_system_bus_id(const char *given, char out[SYSTEM_BUS_ID])
{
    const char *colon = strchr(given, ':');
    for (; colon && colon - given > 4 && *given == '0'; given++) { /* NVML prints eight digits */
    }
    snprintf(out, SYSTEM_BUS_ID, "%.*s", SYSTEM_BUS_ID - 1, given);
    for (char *c = out; *c; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
}

bool cli_system_read_library(const char *root, char *out, size_t bytes)
{
    char line[1024];
    bool readable;
    const char *at = cli_system_find_line(root, "/proc/self/maps", "/libcuda.so.", line, sizeof(line), &readable)
                         ? strstr(line, "/libcuda.so.") + 12
                         : "";
    snprintf(out, bytes, "%.*s", (int)strspn(at, "0123456789."), at);
    if (!strchr(out, '.')) {
        out[0] = 0;
    }
    return out[0] != 0;
}

bool cli_system_read_module(const char *root, char *out, size_t bytes)
{
    bool readable;
    out[0] = 0;
    return cli_system_find_line(root, "/proc/driver/nvidia/version", "NVRM version", out, bytes, &readable);
}

bool cli_system_has_version(const char *line, const char *version)
{
    const char *at = version[0] ? strstr(line, version) : NULL;
    return at && (at == line || !isdigit((unsigned char)at[-1])) && !isdigit((unsigned char)at[strlen(version)]);
}

/* ---- IOMMU ---- */

system_iommu cli_system_read_iommu(const char *root, const char *bus_id, char group[64], char type[64])
{
    char id[SYSTEM_BUS_ID], path[SYSTEM_PATH_BYTES], target[SYSTEM_PATH_BYTES];
    group[0] = type[0] = 0;
    cli_system_bus_id(bus_id, id);
    cli_system_make_path(path, root, DEVICES "%s/iommu_group", id);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length <= 0) {
        int units = cli_system_count_entries(root, "/sys/class/iommu");
        return units > 0 ? SYSTEM_IOMMU_UNGROUPED : units == 0 ? SYSTEM_IOMMU_OFF : SYSTEM_IOMMU_UNKNOWN;
    }
    target[length] = 0;
    const char *slash = strrchr(target, '/');
    snprintf(group, 64, "%.60s", slash ? slash + 1 : target);
    return cli_system_read_line(root, type, 64, "/sys/kernel/iommu_groups/%s/type", group) ? SYSTEM_IOMMU_TYPED
                                                                                           : SYSTEM_IOMMU_UNTYPED;
}

/* ---- links and windows ---- */

/* Parses values such as "32.0 GT/s PCIe" and "16". */
bool cli_system_read_link(const char *root, const char *bus_id, system_link *out)
{
    static const char *const names[4] = {"current_link_speed", "max_link_speed", "current_link_width",
                                         "max_link_width"};
    char id[SYSTEM_BUS_ID], text[64];
    double value[4];
    bool whole = true;
    cli_system_bus_id(bus_id, id);
    for (int i = 0; i < 4; i++) {
        char *end = text;
        value[i] =
            cli_system_read_line(root, text, sizeof(text), DEVICES "%s/%s", id, names[i]) ? strtod(text, &end) : 0;
        if (end == text || !(value[i] > 0) || value[i] > 1000 || (i >= 2 && value[i] >= 255)) {
            value[i] = 0;
            whole = false;
        }
    }
    *out = (system_link){value[0], value[1], (int)value[2], (int)value[3]};
    return whole;
}

uint64_t cli_system_read_window(const char *root, const char *bus_id)
{
    char id[SYSTEM_BUS_ID], path[SYSTEM_PATH_BYTES], line[128];
    unsigned long long first = 0, last = 0;
    cli_system_bus_id(bus_id, id);
    cli_system_make_path(path, root, DEVICES "%s/resource", id);
    FILE *file = fopen(path, "re");
    bool got = file && fgets(line, sizeof(line), file) && fgets(line, sizeof(line), file) &&
               sscanf(line, "%llx %llx", &first, &last) == 2;
    if (file) {
        fclose(file);
    }
    return got && last > first ? last - first + 1 : 0;
}

/* ---- bridges above a device ---- */

/* Parses the path of the device in /sys, such as
 * ".../pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:00.0". */
void cli_system_read_chain(const char *root, const char *bus_id, system_chain *out)
{
    char id[SYSTEM_BUS_ID], path[SYSTEM_PATH_BYTES], real[PATH_MAX];
    memset(out, 0, sizeof(*out));
    out->n = -1;
    cli_system_bus_id(bus_id, id);
    cli_system_make_path(path, root, DEVICES "%s", id);
    const char *at = realpath(path, real) ? strstr(real, "/pci") : NULL;
    if (!at) {
        return;
    }
    out->n = 0;
    size_t length = strcspn(at + 1, "/");
    snprintf(out->root, sizeof(out->root), "%.*s", (int)(length < SYSTEM_BUS_ID ? length : SYSTEM_BUS_ID - 1), at + 1);
    for (at += 1 + length; *at == '/' && out->n < SYSTEM_CHAIN_MAX; at += 1 + length) {
        length = strcspn(at + 1, "/");
        /* the last bus id is that of the device itself */
        if (cli_system_is_bus_id(at + 1, length) && at[1 + length] == '/') {
            snprintf(out->bridge[out->n++], SYSTEM_BUS_ID, "%.*s", (int)length, at + 1);
        }
    }
}

int cli_system_read_acs(const char *root, const char *bridge)
{
    char path[SYSTEM_PATH_BYTES];
    unsigned char config[CONFIG_BYTES];
    cli_system_make_path(path, root, DEVICES "%s/config", bridge);
    FILE *file = fopen(path, "re");
    size_t bytes = file ? fread(config, 1, sizeof(config), file) : 0;
    if (file) {
        fclose(file);
    }
    if (bytes < CONFIG_BYTES) {
        return bytes == CONFIG_EXTENDED ? 0
                                        /* 256 bytes: conventional PCI without extended
                                         * capabilities; 64 bytes: no privilege to read more */
                                        : -1;
    }
    int at = CONFIG_EXTENDED;
    for (int i = 0; i < CONFIG_BYTES / 8 && at >= CONFIG_EXTENDED && at + ACS_CONTROL + 2 <= CONFIG_BYTES; i++) {
        unsigned header = config[at] | (unsigned)config[at + 1] << 8 | (unsigned)config[at + 2] << 16 |
                          (unsigned)config[at + 3] << 24;
        if (header == UINT32_MAX) {
            return -1; /* all bits are set: the device is gone */
        }
        if ((header & 0xffff) == CAPABILITY_ACS) {
            return config[at + ACS_CONTROL] | config[at + ACS_CONTROL + 1] << 8;
        }
        at = (int)(header >> 20) & ~3;
    }
    return 0;
}

system_path cli_system_path_between(const system_chain *a, const system_chain *b)
{
    if (a->n < 0 || b->n < 0) {
        return SYSTEM_PATH_UNKNOWN;
    }
    if (strcmp(a->root, b->root) != 0) {
        return SYSTEM_PATH_OTHER_ROOT;
    }
    return a->n > 0 && b->n > 0 && strcmp(a->bridge[0], b->bridge[0]) == 0 ? SYSTEM_PATH_SAME_SWITCH
                                                                           : SYSTEM_PATH_SAME_ROOT;
}

const char *cli_system_path_text(system_path path)
{
    static const char *const texts[] = {"unknown", "same switch", "same root complex", "different root complexes"};
    return texts[path];
}
