/* results.c - result files: results of pairs of devices, for later processes.
 *
 * Threads, locks, blocking, and guarantees: see peers.h.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/descriptor.h"
#include "base/file.h"
#include "base/wait.h"
#include "driver/driver.h"
#include "peer/peers.h"
#include "peer/test.h"

#define HEADING "heddle peer result 1"
#define LOCK_SLEEP_NS 10000000
#define LOCK_TIMES_MOST 10 /* the longest wait in all, as a multiple of the timeout */

/* ---- keys ---- */

static uint64_t results_hash_bytes(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ p[i]) * 0x100000001b3u;
    }
    return h;
}

static uint64_t results_hash_text(uint64_t h, const char *text)
{
    return results_hash_bytes(h, text, strlen(text) + 1);
}

/* Appends "NAME VALUE\n", with "?" for unprintable characters. */
static bool results_append(hdi_result_key *key, size_t *used, const char *name, const char *value)
{
    size_t n = strlen(name) + strlen(value) + 2;
    if (n >= sizeof key->text - *used) {
        return false;
    }
    *used += (size_t)sprintf(key->text + *used, "%s ", name);
    for (const char *p = value; *p; p++) {
        key->text[(*used)++] = isprint((unsigned char)*p) ? *p : '?';
    }
    key->text[(*used)++] = '\n';
    key->text[*used] = 0;
    return true;
}

static bool results_append_device(hdi_result_key *key, size_t *used, const char *name, const char *bus,
                                  const uint8_t *uuid)
{
    char value[128];
    int n = snprintf(value, sizeof value, "%.64s ", bus);
    for (int i = 0; i < 16; i++) {
        n += snprintf(value + n, sizeof value - (size_t)n, "%02x", uuid[i]);
    }
    return results_append(key, used, name, value);
}

bool hdi_result_key_make(const hdi_result_facts *f, hdi_result_key *out)
{
    uint64_t h = 0xcbf29ce484222325u;
    h = results_hash_bytes(h, f->device_uuid, 16);
    h = results_hash_bytes(h, f->owner_uuid, 16);
    h = results_hash_text(h, f->device_bus);
    h = results_hash_text(h, f->owner_bus);
    h = results_hash_text(h, f->provider);
    h = results_hash_text(h, f->placement);
    h = results_hash_text(h, f->faults);
    snprintf(out->name, sizeof out->name, "peer-%016llx.txt", (unsigned long long)h);
    char test[32];
    snprintf(test, sizeof test, "%d", HDI_PROBE_VERSION);
    size_t used = 0;
    out->text[0] = 0;
    return results_append(out, &used, "test", test) && results_append(out, &used, "program", f->program) &&
           results_append(out, &used, "boot", f->boot) && results_append(out, &used, "kernel", f->kernel) &&
           results_append(out, &used, "driver", f->driver) && results_append(out, &used, "provider", f->provider) &&
           results_append(out, &used, "placement", f->placement) && results_append(out, &used, "faults", f->faults) &&
           results_append_device(out, &used, "device", f->device_bus, f->device_uuid) &&
           results_append_device(out, &used, "owner", f->owner_bus, f->owner_uuid);
}

void hdi_results_read_line(const char *path, char *out, size_t bytes)
{
    out[0] = 0;
    int fd = hdi_descriptor_open(path, O_RDONLY | O_NOCTTY, 0);
    if (fd < 0) {
        return;
    }
    size_t n = 0;
    ssize_t r;
    while (n < bytes - 1 && ((r = read(fd, out + n, bytes - 1 - n)) > 0 || (r < 0 && errno == EINTR))) {
        n += r > 0 ? (size_t)r : 0;
    }
    close(fd);
    out[n] = 0;
    out[strcspn(out, "\n")] = 0;
    for (char *p = out; *p; p++) {
        *p = isprint((unsigned char)*p) ? *p : '?';
    }
}

void hdi_result_machine_read(const char *version_file, int driver_version, const char *program, hdi_result_machine *out)
{
    char module[200] = "";
    struct stat facts;
    hdi_results_read_line("/proc/sys/kernel/random/boot_id", out->boot, sizeof out->boot);
    hdi_results_read_line("/proc/cmdline", out->kernel, sizeof out->kernel);
    if (version_file) {
        hdi_results_read_line(version_file, module, sizeof module);
    }
    snprintf(out->driver, sizeof out->driver, "%d %s", driver_version, module);
    out->program[0] = 0;
    if (stat(program, &facts) == 0) {
        snprintf(out->program, sizeof out->program, "%lld %lld.%09ld", (long long)facts.st_size,
                 (long long)facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);
    }
}

/* ---- the folder ---- */

/* Makes the folder and all missing folders above it. */
static bool results_make_folder(const char *path)
{
    struct stat facts;
    if (stat(path, &facts) == 0) {
        return S_ISDIR(facts.st_mode);
    }
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof part) {
        return false;
    }
    for (size_t i = 1; i <= length; i++) {
        if (path[i] == '/' || path[i] == 0) {
            memcpy(part, path, i);
            part[i] = 0;
            if (mkdir(part, 0700) != 0 && errno != EEXIST) {
                return false;
            }
        }
    }
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

bool hdi_results_folder(const char *option, char *out, size_t bytes)
{
    if (strcmp(option, "none") == 0) {
        return false;
    }
    int n;
    if (option[0]) {
        n = snprintf(out, bytes, "%s", option);
    } else {
        /* The XDG base directory specification requires that a relative path be ignored. */
        const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
        bool has_cache = cache && cache[0] == '/';
        if (!has_cache && !(home && home[0] == '/')) {
            return false;
        }
        n = snprintf(out, bytes, "%s%s/heddle", has_cache ? cache : home, has_cache ? "" : "/.cache");
    }
    return n > 0 && (size_t)n < bytes && results_make_folder(out);
}

static bool results_path_of(const char *folder, const char *name, char *out, size_t bytes)
{
    int n = snprintf(out, bytes, "%s/%s", folder, name);
    return n > 0 && (size_t)n < bytes;
}

/* ---- reading ---- */

/* Moves *at past "NAME VALUE\n" and terminates the value. NULL: it is another line. */
static char *results_take_line(char **at, const char *name)
{
    size_t length = strlen(name);
    char *end = strchr(*at, '\n');
    if (!end || strncmp(*at, name, length) != 0 || (*at)[length] != ' ') {
        return NULL;
    }
    char *value = *at + length + 1;
    *end = 0;
    *at = end + 1;
    return value;
}

static bool results_take_integer(char **at, const char *name, long low, long high, long *out)
{
    char *value = results_take_line(at, name), *end;
    if (!value || !isdigit((unsigned char)value[0])) {
        return false;
    }
    errno = 0;
    *out = strtol(value, &end, 10);
    return !*end && errno == 0 && *out >= low && *out <= high;
}

/* Rates are whole numbers, so that the program's locale does not matter. */
static bool results_take_rate(char **at, const char *name, double *out)
{
    long rate = 0;
    bool good = results_take_integer(at, name, 0, LONG_MAX, &rate);
    *out = (double)rate;
    return good;
}

static bool results_take_verdict(char **at, hd_peer_verdict *out)
{
    const char *word = results_take_line(at, "verdict");
    static const hd_peer_verdict kept[] = {HD_PEER_USABLE, HD_PEER_SLOW, HD_PEER_REFUSED, HD_PEER_CORRUPT};
    for (size_t i = 0; word && i < sizeof kept / sizeof kept[0]; i++) {
        if (strcmp(word, hd_peer_verdict_text(kept[i])) == 0) {
            *out = kept[i];
            return true;
        }
    }
    return false;
}

static bool results_take_reason(char **at, hd_peer_info *info)
{
    const char *reason = results_take_line(at, "reason");
    if (!reason || strlen(reason) >= sizeof info->reason) {
        return false;
    }
    for (const char *p = reason; *p; p++) {
        if (!isprint((unsigned char)*p)) {
            return false;
        }
    }
    memcpy(info->reason, reason, strlen(reason) + 1);
    return true;
}

static bool results_parse(char *text, const hdi_result_key *key, hd_peer_info *out)
{
    hd_peer_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    size_t key_length = strlen(key->text), heading = strlen(HEADING "\n");
    if (strncmp(text, HEADING "\n", heading) != 0 || strncmp(text + heading, key->text, key_length) != 0) {
        return false;
    }
    char *at = text + heading + key_length;
    long code = 0, atomics = 0;
    if (!results_take_verdict(&at, &info.verdict) || !results_take_integer(&at, "code", 0, 100000, &code) ||
        !results_take_integer(&at, "atomics", 0, 1, &atomics) ||
        !results_take_rate(&at, "direct", &info.direct_bytes_per_s) ||
        !results_take_rate(&at, "staged", &info.staged_bytes_per_s) || !results_take_reason(&at, &info) ||
        strcmp(at, "end\n") != 0) {
        return false;
    }
    info.driver_code = (int)code;
    info.atomics = atomics != 0;
    info.remembered = true;
    *out = info;
    return true;
}

bool hdi_result_load(const char *folder, const hdi_result_key *key, hd_peer_info *out)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes;
    bool good = results_path_of(folder, key->name, path, sizeof path) &&
                hdi_file_read_own(path, HDI_RESULT_BYTES - 1, &text, &bytes) && !memchr(text, 0, bytes) &&
                results_parse(text, key, out);
    free(text);
    return good;
}

/* ---- writing ---- */

void hdi_result_save(const char *folder, const hdi_result_key *key, const hd_peer_info *info)
{
    if (info->verdict == HD_PEER_UNKNOWN || info->verdict == HD_PEER_INCONCLUSIVE ||
        info->driver_code == HDCU_ERROR_TOO_MANY_PEERS) {
        return;
    }
    char path[PATH_MAX];
    char *text = malloc(HDI_RESULT_BYTES);
    if (!text) {
        return;
    }
    int n = snprintf(text, HDI_RESULT_BYTES,
                     HEADING "\n%sverdict %s\ncode %d\natomics %d\ndirect %.0f\nstaged %.0f\nreason %s\nend\n",
                     key->text, hd_peer_verdict_text(info->verdict), info->driver_code > 0 ? info->driver_code : 0,
                     info->atomics, info->direct_bytes_per_s, info->staged_bytes_per_s, info->reason);
    if (n > 0 && n < HDI_RESULT_BYTES && results_path_of(folder, key->name, path, sizeof path)) {
        hdi_file_sweep(path);
        hdi_file_replace(path, text, (size_t)n, 0600); /* for this user only */
    }
    free(text);
}

/* ---- one test at a time ---- */

/* The time of the latest result of the lock's holder. */
static int64_t results_time_of(int fd)
{
    struct stat facts;
    return fstat(fd, &facts) == 0 ? (int64_t)facts.st_mtim.tv_sec * 1000000000 + facts.st_mtim.tv_nsec : 0;
}

/* Waits for the lock, see hdi_results_lock. False: the lock was not taken, or is not needed any
 * more. */
static bool results_lock_file(int fd, int64_t timeout_ns, bool (*enough)(void *context), void *context,
                              const _Atomic bool *ended)
{
    int64_t begun = hdi_clock_ns(), since = begun, seen = results_time_of(fd);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        bool taken = errno == EWOULDBLOCK || errno == EINTR;
        int64_t now = hdi_clock_ns(), latest = results_time_of(fd);
        if (latest != seen) {
            seen = latest;
            since = now;
            if (enough && enough(context)) {
                return false;
            }
        }
        bool over = ended && atomic_load_explicit(ended, memory_order_relaxed);
        if (over || !taken || now - since > timeout_ns || (now - begun) / LOCK_TIMES_MOST > timeout_ns) {
            return false;
        }
        hdi_sleep_for(LOCK_SLEEP_NS);
    }
    return !enough || !enough(context);
}

/* True if this user owns the lock file. If other users can write in the folder, one of them may
 * have put the file there. Such a lock file could delay tests. Or it could be a link to another
 * file, and this process would change the time of that file. */
static bool results_is_own_lock(int fd)
{
    struct stat facts;
    return fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == geteuid() && facts.st_nlink == 1 &&
           !(facts.st_mode & (S_IRWXG | S_IRWXO));
}

int hdi_results_lock(const char *folder, int64_t timeout_ns, bool (*enough)(void *context), void *context,
                     const _Atomic bool *ended)
{
    char path[PATH_MAX];
    int fd = -1;
    if (results_path_of(folder, "lock", path, sizeof path)) {
        fd = hdi_descriptor_open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    }
    if (fd >= 0 && !results_is_own_lock(fd)) {
        close(fd);
        fd = -1;
    }
    if (fd >= 0 && !results_lock_file(fd, timeout_ns, enough, context, ended)) {
        hdi_results_unlock(fd);
        fd = -1;
    }
    hdi_results_extend(fd);
    return fd;
}

void hdi_results_extend(int descriptor)
{
    if (descriptor >= 0) {
        futimens(descriptor, NULL);
    }
}

void hdi_results_unlock(int descriptor)
{
    if (descriptor >= 0) {
        /* also unlocks if a child of the program holds a copy of the descriptor */
        flock(descriptor, LOCK_UN);
        close(descriptor);
    }
}
