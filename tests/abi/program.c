/* program.c - a program that uses every structure that begins with its size, and checks the memory
 * around each.
 *
 * test_versions.sh compiles it with the present headers and, with LATER defined, with those of a
 * later release. It runs both programs with both libraries. The program prints only facts of both
 * releases, so all four print the same.
 * Threads: the main one. Locks: none.
 */
#include <heddle.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void wrong(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("WRONG: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    failures++;
}

static void need(hd_status status, const char *what)
{
    if (status != HD_OK) {
        wrong("%s: %s: %s", what, hd_status_name(status), hd_message());
        exit(1);
    }
}
#define NEED(call) need((call), #call)

#ifdef LATER
/* Prints whether the library refused an input because of fields that it does not know. */
static void tell_later(const char *what, hd_status status)
{
    bool refused = status == HD_ERROR_ARGUMENT && strstr(hd_message(), "that this library") != NULL;
    printf("LATER: %s: %s\n", what, refused ? "refused" : "taken");
}
#endif

enum { BESIDE = 64, FRESH = 0xa5 };

/* A structure and memory behind it that no code may touch, all filled with old stack bytes. */
#define WATCHED(type)                                                                                                  \
    struct {                                                                                                           \
        type it;                                                                                                       \
        unsigned char beside[BESIDE];                                                                                  \
    }

static void is_fresh(const unsigned char *beside, const char *what)
{
    for (int i = 0; i < BESIDE; i++) {
        if (beside[i] != FRESH) {
            wrong("%s: byte %d behind the structure is %02x", what, i, beside[i]);
            return;
        }
    }
}

#ifdef LATER
#define NEW_FIELDS_ARE_ZERO(s, what)                                                                                   \
    do {                                                                                                               \
        char none[sizeof(s).later_room] = {0};                                                                         \
        if ((s).later_number != 0 || (s).later_text != NULL || memcmp((s).later_room, none, sizeof none) != 0) {       \
            wrong("%s: a field that the library does not have is not 0", what);                                        \
        }                                                                                                              \
    } while (0)
#else
#define NEW_FIELDS_ARE_ZERO(s, what) (void)(s)
#endif

/* Asks for an output structure, and checks its bounds. */
#define ASK(type, name, call)                                                                                          \
    WATCHED(type) name;                                                                                                \
    memset(&name, FRESH, sizeof name);                                                                                 \
    name.it.size = sizeof name.it;                                                                                     \
    call;                                                                                                              \
    is_fresh(name.beside, #type);                                                                                      \
    if (name.it.size != sizeof name.it) {                                                                              \
        wrong(#type ": size became %zu", name.it.size);                                                                \
    }                                                                                                                  \
    NEW_FIELDS_ARE_ZERO(name.it, #type)

static void facts(hd_runtime *runtime)
{
    ASK(hd_runtime_info, info, NEED(hd_runtime_get_info(runtime, &info.it)));
    printf("runtime: %s, %d devices\n", info.it.driver, info.it.device_count);
    ASK(hd_device_info, device, NEED(hd_device_get_info(runtime, 1, &device.it)));
    printf("device: %s, %s, %zu bytes, peers %llx, lost %llu, restarted %llu\n", device.it.name, device.it.bus_id,
           device.it.memory_bytes, (unsigned long long)device.it.peers, (unsigned long long)device.it.losses,
           (unsigned long long)device.it.restarts);
    for (int i = 0; i < 3; i++) {
        ASK(hd_option_info, option, NEED(hd_option_get_info(runtime, i, &option.it)));
        printf("option: %s, %s, %s, %d, %d\n", option.it.name, option.it.environment, option.it.value,
               option.it.is_default, (int)option.it.source);
    }
    ASK(hd_peer_info, peer, NEED(hd_peer_check(runtime, 1, 1, &peer.it)));
    printf("peer: %s '%s'\n", hd_peer_verdict_text(peer.it.verdict), peer.it.reason);
}

/* With worker processes only: the end of one is a loss. */
static void losses(hd_runtime *runtime)
{
    hd_device_info device = {.size = sizeof device};
    struct pollfd told = {.events = POLLIN};
    NEED(hd_device_get_info(runtime, 1, &device));
    if (device.worker_pid == 0) {
        return;
    }
    NEED(hd_loss_descriptor(runtime, &told.fd));
    kill(device.worker_pid, SIGKILL);
    while (poll(&told, 1, -1) < 0) {
    }
    ASK(hd_device_loss, loss, NEED(hd_loss_next(runtime, &loss.it)));
    printf("loss: device %d, cause %d, %llu\n", loss.it.device, (int)loss.it.cause, (unsigned long long)loss.it.losses);
}

static void tell_pair(void *context, int device, int owner, const hd_peer_info *info, int done, int total)
{
    (void)context;
    printf("pair %d of %d: %d>%d %s\n", done, total, device, owner, hd_peer_verdict_text(info->verdict));
    NEW_FIELDS_ARE_ZERO(*info, "hd_peer_info of a callback");
}

static bool reclaim(void *context, const hd_reclaim *what)
{
    if (what->reason == HD_RECLAIM_LIMIT && what->attempt == 0) {
        printf("reclaim: device %d wants %zu of %llu\n", what->device, what->wanted,
               (unsigned long long)what->limit_bytes);
        ++*(int *)context;
    }
    NEW_FIELDS_ARE_ZERO(*what, "hd_reclaim");
    return false;
}

static bool tell_block(void *context, const hd_memory_block *block)
{
    (void)context;
    printf("block: device %d, %llu bytes '%s'\n", block->device, (unsigned long long)block->bytes, block->label);
    NEW_FIELDS_ARE_ZERO(*block, "hd_memory_block");
    return true;
}

static void memory(hd_runtime *runtime)
{
    hd_lane *lane = NULL;
    hd_buffer *buffer = NULL, *none = NULL;
    hd_alloc_options options = {.size = sizeof options, .label = "some"};
    NEED(hd_lane_get_default(runtime, 0, &lane));
    NEED(hd_alloc_with(lane, 4096, &options, &buffer));
#ifdef LATER
    options.later_number = 1;
    tell_later("hd_alloc_with", hd_alloc_with(lane, 4096, &options, &none));
    hd_free(none);
#endif
    int calls = 0;
    NEED(hd_memory_on_reclaim(runtime, reclaim, &calls));
    hd_status status = hd_alloc(lane, (size_t)1 << 40, &none);
    ASK(hd_error, error, hd_last_error(&error.it));
    printf("too much: %s, device %d, %d calls\n", hd_status_name(status), error.it.device, calls);
    if (strcmp(error.it.message, hd_message()) != 0) {
        wrong("hd_last_error has another message than hd_message");
    }
    NEED(hd_memory_each(runtime, tell_block, NULL));
    ASK(hd_memory_stats, stats, NEED(hd_memory_get_stats(runtime, 0, &stats.it)));
    printf("memory: %llu bytes in %llu, %llu failures\n", (unsigned long long)stats.it.live_bytes,
           (unsigned long long)stats.it.live_count, (unsigned long long)stats.it.failures);
    ASK(hd_device_stats, counters, NEED(hd_device_get_stats(runtime, 0, &counters.it)));
    printf("counters: %llu bytes in %llu\n", (unsigned long long)counters.it.bytes_live,
           (unsigned long long)counters.it.buffers_live);

    char sent[64], got[64];
    for (int i = 0; i < 64; i++) {
        sent[i] = (char)('A' + i);
    }
    memset(got, '.', sizeof got);
    hd_box box = {.size = sizeof box, .row = 4, .dims = 1, .count = {6}, .dst_stride = {10}, .src_stride = {5}};
    NEED(hd_write_box(buffer, 0, sent, &box));
    box.src_stride[0] = 10;
    NEED(hd_read_box(buffer, 0, got, &box));
    printf("box: %.54s\n", got);
#ifdef LATER
    box.later_text = "more";
    tell_later("hd_read_box", hd_read_box(buffer, 0, got, &box));
#endif
    hd_free(buffer);
}

static void kernel_file(void)
{
    static const char ptx[] = ".version 6.3\n";
    void *out = NULL;
    size_t bytes = 0;
    hd_kernel_file_parts parts = {.size = sizeof parts, .ptx = ptx, .ptx_bytes = sizeof ptx};
    printf("kernel file: %s %s\n", hd_status_name(hd_kernel_file_build(&parts, &out, &bytes)), hd_message());
#ifdef LATER
    parts.later_room[20] = 1;
    tell_later("hd_kernel_file_build", hd_kernel_file_build(&parts, &out, &bytes));
#endif
}

int main(void)
{
    hd_runtime *runtime = NULL;
    hd_options options = {.size = sizeof options,
                          .settings = "driver=host host_devices=2 host_memory=64M memory_timeout=0"};
    NEED(hd_open(&options, &runtime));
#ifdef LATER
    hd_runtime *other = NULL;
    options.later_number = 1;
    tell_later("hd_open", hd_open(&options, &other));
    hd_close(other);
#endif
    facts(runtime);
    NEED(hd_peers_check(runtime, 0, tell_pair, NULL));
    memory(runtime);
    kernel_file();
    losses(runtime);
    hd_close(runtime);
    return failures != 0;
}
