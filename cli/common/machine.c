/* machine.c - reads facts about the machine from /proc and /sys, and writes them and the runtime's
 * facts as JSON.
 *
 * Threads: any. Locks: none.
 * Always: an unreadable file makes only its own facts unknown.
 */
#include "cli/common/machine.h"

#include <dirent.h>
#include <sched.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* Finds the text after "KEY :" in a file of such lines. False if no line matches. */
static bool cli_machine_find_line(const char *path, const char *key, char *out, size_t bytes)
{
    FILE *file = fopen(path, "re");
    char line[512];
    bool found = false;
    while (file && !found && fgets(line, sizeof(line), file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) == 0 && colon) {
            char *text = colon + 1 + strspn(colon + 1, " \t");
            text[strcspn(text, "\n")] = 0;
            snprintf(out, bytes, "%s", text);
            found = true;
        }
    }
    if (file) {
        fclose(file);
    }
    return found;
}

static int cli_machine_count_numa_nodes(void)
{
    DIR *directory = opendir("/sys/devices/system/node");
    int count = 0, number;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        count += sscanf(entry->d_name, "node%d", &number) == 1;
    }
    if (directory) {
        closedir(directory);
    }
    return count;
}

void cli_machine_read(machine_facts *out)
{
    memset(out, 0, sizeof(*out));
    if (!cli_machine_find_line("/proc/cpuinfo", "model name", out->cpu, sizeof(out->cpu))) {
        cli_machine_find_line("/proc/cpuinfo", "Model", out->cpu, sizeof(out->cpu));
    }
    cpu_set_t allowed;
    out->processors =
        sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    out->memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    out->numa_nodes = cli_machine_count_numa_nodes();
    struct utsname u;
    if (uname(&u) == 0) {
        snprintf(out->system, sizeof(out->system), "%.60s %.100s %.60s", u.sysname, u.release, u.machine);
    }
}

void cli_machine_uuid_text(const uint8_t u[16], char out[48])
{
    snprintf(out, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
             u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

void cli_machine_driver_version_text(int version, char out[24])
{
    snprintf(out, 24, "%d.%d", version / 1000, version % 1000 / 10);
}

void cli_machine_date_text(double seconds, char out[32])
{
    time_t t = (time_t)seconds;
    struct tm parts;
    if (!gmtime_r(&t, &parts) || strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
        out[0] = 0;
    }
}

static void cli_machine_put_string(hdi_json *j, const char *key, const char *value)
{
    hdi_json_key(j, key);
    hdi_json_string(j, value);
}

static void cli_machine_put_integer(hdi_json *j, const char *key, int64_t value)
{
    hdi_json_key(j, key);
    hdi_json_integer(j, value);
}

void cli_machine_json(hdi_json *j)
{
    machine_facts facts;
    cli_machine_read(&facts);
    hdi_json_object(j);
    cli_machine_put_string(j, "cpu", facts.cpu);
    cli_machine_put_integer(j, "processors", facts.processors);
    cli_machine_put_integer(j, "memory_bytes", (int64_t)facts.memory_bytes);
    cli_machine_put_integer(j, "numa_nodes", facts.numa_nodes);
    cli_machine_put_string(j, "system", facts.system);
    hdi_json_object_end(j);
}

static void cli_machine_put_device(hdi_json *j, hd_runtime *runtime, int index)
{
    hd_device_info d = {.size = sizeof(d)};
    hdi_json_object(j);
    cli_machine_put_integer(j, "device", index);
    if (hd_device_get_info(runtime, index, &d) != HD_OK) {
        cli_machine_put_string(j, "failure", hd_message());
        hdi_json_object_end(j);
        return;
    }
    char uuid[48];
    cli_machine_uuid_text(d.uuid, uuid);
    cli_machine_put_string(j, "name", d.name);
    cli_machine_put_string(j, "bus_id", d.bus_id);
    cli_machine_put_string(j, "uuid", uuid);
    hdi_json_key(j, "is_host");
    hdi_json_bool(j, d.is_host);
    hdi_json_key(j, "lost");
    hdi_json_bool(j, d.lost);
    cli_machine_put_integer(j, "worker_pid", d.worker_pid);
    cli_machine_put_integer(j, "losses", (int64_t)d.losses);
    cli_machine_put_integer(j, "restarts", (int64_t)d.restarts);
    cli_machine_put_integer(j, "compute_major", d.compute_major);
    cli_machine_put_integer(j, "compute_minor", d.compute_minor);
    cli_machine_put_integer(j, "multiprocessors", d.multiprocessors);
    cli_machine_put_integer(j, "max_threads_per_block", d.max_threads_per_block);
    cli_machine_put_integer(j, "shared_bytes_per_block", (int64_t)d.shared_bytes_per_block);
    cli_machine_put_integer(j, "shared_bytes_max", (int64_t)d.shared_bytes_max);
    cli_machine_put_integer(j, "memory_bytes", (int64_t)d.memory_bytes);
    cli_machine_put_integer(j, "memory_free_bytes", (int64_t)d.memory_free_bytes);
    cli_machine_put_integer(j, "numa_node", d.numa_node);
    hdi_json_key(j, "peers");
    hdi_json_array(j);
    for (int i = 0; i < 64; i++) {
        if (d.peers >> i & 1) {
            hdi_json_integer(j, i);
        }
    }
    hdi_json_array_end(j);
    hdi_json_object_end(j);
}

void cli_machine_runtime_json(hdi_json *j, hd_runtime *runtime)
{
    hd_runtime_info info = {.size = sizeof(info)};
    char version[24] = "";
    hdi_json_object(j);
    if (hd_runtime_get_info(runtime, &info) == HD_OK) {
        cli_machine_driver_version_text(info.driver_version, version);
        cli_machine_put_string(j, "driver", info.driver);
        cli_machine_put_string(j, "driver_version", version);
        cli_machine_put_string(j, "placement", info.placement);
    }
    hdi_json_key(j, "devices");
    hdi_json_array(j);
    for (int i = 0; i < hd_device_count(runtime); i++) {
        cli_machine_put_device(j, runtime, i);
    }
    hdi_json_array_end(j);
    hdi_json_object_end(j);
}

void cli_machine_options_json(hdi_json *j, const hd_runtime *runtime)
{
    hd_option_info o = {.size = sizeof(o)};
    hdi_json_array(j);
    for (int i = 0; hd_option_get_info(runtime, i, &o) == HD_OK; i++) {
        hdi_json_object(j);
        cli_machine_put_string(j, "name", o.name);
        cli_machine_put_string(j, "environment", o.environment);
        cli_machine_put_string(j, "value", o.value);
        hdi_json_key(j, "is_default");
        hdi_json_bool(j, o.is_default);
        cli_machine_put_string(j, "source",
                               o.source == HD_OPTION_FROM_ENVIRONMENT ? "environment"
                               : o.source == HD_OPTION_FROM_SETTINGS  ? "settings"
                                                                      : "default");
        cli_machine_put_string(j, "help", o.help);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

void cli_machine_info_json(FILE *out, hd_runtime *runtime, const char *failure)
{
    hdi_json j;
    hdi_json_begin(&j, out);
    hdi_json_object(&j);
    cli_machine_put_string(&j, "heddle", hd_version());
    hdi_json_key(&j, "machine");
    cli_machine_json(&j);
    if (runtime) {
        hdi_json_key(&j, "runtime");
        cli_machine_runtime_json(&j, runtime);
    } else {
        cli_machine_put_string(&j, "failure", failure);
    }
    hdi_json_key(&j, "options");
    cli_machine_options_json(&j, runtime);
    hdi_json_object_end(&j);
    hdi_json_end(&j);
}
