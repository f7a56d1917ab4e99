/* peers.h - shared code of the tests of peer access.
 *
 * - a folder per case
 * - checks of copies and kernels between two devices
 * - a script in front of the test program, and waits for its progress
 *
 * Only host devices can be peers that lose bytes (option host_corrupt), so most cases need them. If
 * a case counts tests of pairs, or changes their results, the test program is a script in front of
 * the real one.
 *
 * Threads: any. One at a time uses `first` and `second`.
 * Locks: none.
 */
#ifndef CONFORMANCE_PEERS_H
#define CONFORMANCE_PEERS_H

#include "conformance.h"
#include "folder.h"

CONF_UNUSED static const uint64_t words = 30000;
CONF_UNUSED static const size_t bytes = 30000 * 4;

/* Its folder contains "cache", and the files that the script writes and reads. */
#define PEER_CASE FOLDER_CASE

/* ---- helpers ---- */

CONF_UNUSED static hd_peer_info ask(hd_runtime *runtime, int device, int owner)
{
    hd_peer_info info = {.size = sizeof info};
    CONF_OK(hd_peer_check(runtime, device, owner, &info));
    CONF_EQUAL(info.size, sizeof info);
    CONF_TRUE(info.verdict != HD_PEER_UNKNOWN);
    CONF_TRUE(memchr(info.reason, 0, sizeof info.reason) != NULL);
    CONF_EQUAL(info.verdict == HD_PEER_USABLE, info.reason[0] == '\0');
    return info;
}

CONF_UNUSED static void expect(hd_runtime *runtime, int device, int owner, hd_peer_verdict verdict)
{
    hd_peer_info info = ask(runtime, device, owner);
    if (info.verdict != verdict) {
        conf_fail_at(__FILE__, __LINE__, "%d>%d is %s, not %s: %s", device, owner, hd_peer_verdict_text(info.verdict),
                     hd_peer_verdict_text(verdict), info.reason);
    }
}

/* Both count as good: speed and other load of the machine decide between them. */
CONF_UNUSED static bool is_good(hd_peer_verdict verdict)
{
    return verdict == HD_PEER_USABLE || verdict == HD_PEER_SLOW;
}

CONF_UNUSED static void expect_good(hd_runtime *runtime, int device, int owner)
{
    hd_peer_info info = ask(runtime, device, owner);
    if (!is_good(info.verdict)) {
        conf_fail_at(__FILE__, __LINE__, "%d>%d is %s: %s", device, owner, hd_peer_verdict_text(info.verdict),
                     info.reason);
    }
}

/* Makes a buffer on each device, full of a number that names the device. */
CONF_UNUSED static void make_buffers(hd_runtime *runtime, hd_buffer **buffers, int n)
{
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_alloc(conf_default_lane(runtime, i), bytes, &buffers[i]));
        CONF_OK(hd_fill(buffers[i], 0, 1000u + (uint32_t)i, bytes, NULL));
    }
}

/* Checks that hd_copy is right both ways, on any route. */
CONF_UNUSED static void copies_are_right(hd_runtime *runtime, int a, int b)
{
    hd_buffer *x = NULL, *y = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, a), bytes, &x));
    CONF_OK(hd_alloc(conf_default_lane(runtime, b), bytes, &y));
    uint8_t *pattern = conf_memory(bytes);
    for (int round = 0; round < 2; round++) {
        conf_pattern(pattern, bytes, (uint64_t)round + 5);
        CONF_OK(hd_write(x, 0, pattern, bytes));
        CONF_OK(hd_fill(y, 0, 0x77777777, bytes, NULL));
        CONF_OK(hd_copy(y, 0, x, 0, bytes, NULL));
        CONF_HOLDS(y, 0, pattern, bytes);
        CONF_OK(hd_fill(x, 0, 0x66666666, bytes, NULL));
        CONF_OK(hd_copy(x, 4, y, 0, bytes - 4, NULL));
        CONF_HOLDS(x, 4, pattern, bytes - 4);
    }
    free(pattern);
    hd_free(x);
    hd_free(y);
}

/* Checks that a kernel of `device` writes memory of `owner`, and reads it. */
CONF_UNUSED static void kernels_are_right(hd_runtime *runtime, int device, int owner)
{
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *x = NULL, *y = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, owner), bytes, &x));
    CONF_OK(hd_alloc(conf_default_lane(runtime, device), bytes, &y));
    CONF_OK(hd_fill(x, 0, 1, bytes, NULL));
    CONF_OK(conf_fill(conf_default_lane(runtime, device), k, x, 0, words, 2, NULL));
    CONF_FILLED(x, 0, 2, bytes);
    CONF_OK(hd_fill(x, 0, 3, bytes, NULL));
    CONF_OK(conf_copy(conf_default_lane(runtime, device), k, y, 0, x, 0, words, NULL));
    CONF_FILLED(y, 0, 3, bytes);
    hd_free(x);
    hd_free(y);
}

/* Checks that such a kernel is refused before anything runs. The message names both devices, a
 * reason and the remedies. */
CONF_UNUSED static void kernels_are_refused(hd_runtime *runtime, int device, int owner, const char *reason)
{
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, owner), bytes, &x));
    CONF_OK(hd_fill(x, 0, 1, bytes, NULL));
    hd_ticket ticket = {NULL, 5};
    CONF_FAILS_WITH(conf_fill(conf_default_lane(runtime, device), k, x, 0, words, 2, &ticket), HD_ERROR_UNREACHABLE,
                    reason);
    char text[64];
    snprintf(text, sizeof text, "device %d cannot reach a buffer of device %d: ", device, owner);
    CONF_TRUE(strstr(hd_message(), text) != NULL);
    CONF_TRUE(strstr(hd_message(), "argument 0") != NULL);
    snprintf(text, sizeof text, "run the kernel on device %d, or hd_copy the buffer to device %d", owner, device);
    CONF_TRUE(strstr(hd_message(), text) != NULL);
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 5);
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    CONF_EQUAL(error.device, device);
    CONF_FILLED(x, 0, 1, bytes);
    hd_free(x);
    kernels_are_right(runtime, device, device); /* the lane still works */
}

#define NEED_HOST(runtime)                                                                                             \
    do {                                                                                                               \
        if (!conf_is_host(runtime)) {                                                                                  \
            conf_close(runtime);                                                                                       \
            skip();                                                                                                    \
        }                                                                                                              \
    } while (0)

/* Opens and closes a runtime; true if its devices are host devices. */
CONF_UNUSED static bool on_host(void)
{
    hd_runtime *runtime = conf_open(NULL);
    bool host = conf_is_host(runtime);
    conf_close(runtime);
    return host;
}

/* ---- the script ---- */

CONF_UNUSED static void write_text(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CONF_TRUE(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

CONF_UNUSED static bool exists(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

CONF_UNUSED static void remove_file(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

/* Finds the real test program, beside the tool; false if its place is unknown. */
CONF_UNUSED static bool real_probe(char *out, size_t size)
{
    const char *tool = getenv("HEDDLE_TOOL");
    const char *slash = tool != NULL ? strrchr(tool, '/') : NULL;
    if (slash == NULL) {
        return false;
    }
    snprintf(out, size, "%.*s/heddle-probe", (int)(slash - tool), tool);
    return access(out, X_OK) == 0;
}

/* Makes a script that stands in front of the test program. It skips the case if it cannot find the
 * real program. The script:
 *
 * - notes each run in "runs"
 * - makes "waiting" and waits as long as "wait" exists
 * - adds the settings in "extra" and becomes the real program */
CONF_UNUSED static void make_script(void)
{
    char real[512], text[2048], path[128];
    if (!real_probe(real, sizeof real)) {
        skip();
    }
    snprintf(text, sizeof text,
             "#!/bin/sh\n"
             "cd %s || exit 3\n"
             "echo \"$2\" >>runs\n"
             "while [ -e wait ]; do\n"
             "    : >waiting; sleep 0.02\n"
             "done\n"
             "exec '%s' \"$1 $(cat extra 2>/dev/null)\" \"$2\" \"$3\"\n",
             folder, real);
    write_text("probe", text);
    snprintf(path, sizeof path, "%s/probe", folder);
    CONF_EQUAL(chmod(path, 0755), 0);
}

CONF_UNUSED static int count_runs(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/runs", folder);
    FILE *file = fopen(path, "r");
    int n = 0;
    for (int c; file != NULL && (c = fgetc(file)) != EOF;) {
        n += c == '\n';
    }
    if (file != NULL) {
        fclose(file);
    }
    return n;
}

CONF_UNUSED static hd_runtime *open_with_script(const char *more)
{
    return conf_open_with("probe=%s/probe cache=%s/cache %s", folder, folder, more);
}

typedef struct seen {
    hd_runtime *runtime;
    hd_peer_info of[64][64];
    int times[64][64], done, total;
    bool nested;
} seen;

CONF_UNUSED static void note(void *context, int device, int owner, const hd_peer_info *info, int done, int total)
{
    seen *s = context;
    CONF_TRUE(device >= 0 && device < 64 && owner >= 0 && owner < 64 && device != owner);
    CONF_EQUAL(done, s->done + 1);
    CONF_TRUE(s->total == 0 || s->total == total);
    s->done = done;
    s->total = total;
    s->times[device][owner]++;
    s->of[device][owner] = *info;
}

CONF_UNUSED static void check_all(hd_runtime *runtime, unsigned flags, seen *s)
{
    memset(s, 0, sizeof *s);
    s->runtime = runtime;
    CONF_OK(hd_peers_check(runtime, flags, note, s));
    int n = hd_device_count(runtime);
    CONF_EQUAL(s->done, n * (n - 1));
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            CONF_EQUAL(s->times[i][j], i != j);
        }
    }
    CONF_TRUE(n < 2 || s->total == n * (n - 1));
}

CONF_UNUSED static seen first, second;

#endif
