/* scenario.c - see scenario.h. */
#include "scenario.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "support/lanes.h"

#define SETTINGS                                                                                                       \
    "driver=host host_devices=2 host_memory=64M pinned_limit=64M cache=none blas=builtin "                             \
    "memory_timeout=100 "                                                                                              \
    "transfer_timeout=60000 submit_timeout=60000 environment_check=off "
#define SECOND ((int64_t)1000000000)

enum { WORDS = 20000, BYTES = WORDS * 4, ROWS = 100, COLUMNS = 200, LABELS = 8, LAUNCHES = 9 };

static float in[WORDS], out[WORDS];
static uint32_t filled[WORDS];

/* State of one run. */
static struct {
    hd_lane *lanes[SCENARIO_DEVICES], *extra;
    hd_buffer *near, *far, *pinned, *unified, *kept;
    hd_hold *hold;
    bool near_good, kept_good, has_workers;
} t;

/* ---- recording mistakes ---- */

void scenario_wrong(scenario *s, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    n = n < (int)sizeof line - 1 ? n : (int)sizeof line - 2;
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)n) < 0) {
        abort();
    }
    s->wrong++;
}

/* True unless the status means a mistake of the program; only the system failed here. */
static bool can_be_meant(const scenario *s, hd_status status)
{
    switch (status) {
    case HD_ERROR_DEVICE_LOST:
    case HD_ERROR_FAILED:
    case HD_ERROR_LANE_FAILED:
        return true;
    case HD_ERROR_MEMORY:
    case HD_ERROR_HOST_MEMORY:
    case HD_ERROR_SYSTEM:
    case HD_ERROR_DRIVER:
    case HD_ERROR_NO_DRIVER:
        return !s->only_losses || s->runtime == NULL;
    default:
        return false;
    }
}

/* Returns true for success. */
static bool step(scenario *s, hd_status status, const char *call)
{
    if (status == HD_OK) {
        return true;
    }
    s->failures++;
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    const char *message = hd_message();
    if (!can_be_meant(s, status) || error.status != status || message[0] == 0 || strchr(message, '\n') != NULL) {
        scenario_wrong(s, "%s: %s, with the message \"%s\" of %s", call, hd_status_name(status), message,
                       hd_status_name(error.status));
    }
    s->lost = s->lost || status == HD_ERROR_DEVICE_LOST;
    return false;
}
#define STEP(call) step(s, (call), #call)

static void same(scenario *s, const void *expected, size_t bytes, const char *what)
{
    if (memcmp(out, expected, bytes) != 0) {
        scenario_wrong(s, "%s: read with HD_OK, and wrong", what);
    }
    memset(out, 0, sizeof out);
}

/* Clears failed lanes, which otherwise refuse work. */
static void tidy_lanes(scenario *s)
{
    for (int i = 0; i < SCENARIO_DEVICES; i++) {
        if (t.lanes[i] != NULL && !STEP(hd_lane_wait(t.lanes[i], 60 * SECOND))) {
            STEP(hd_lane_reset(t.lanes[i], 60 * SECOND));
        }
    }
}

/* ---- opening and closing ---- */

bool scenario_open(scenario *s, const char *settings)
{
    char all[1024];
    snprintf(all, sizeof all, SETTINGS "%s", settings);
    hd_options options = {.size = sizeof options, .settings = all};
    memset(&t, 0, sizeof t);
    for (int i = 0; i < WORDS; i++) {
        in[i] = (float)i;
        filled[i] = 41;
    }
    t.has_workers = strstr(settings, "placement=process") != NULL;
    s->runtime = NULL;
    return STEP(hd_open(&options, &s->runtime));
}

void scenario_close(scenario *s)
{
    hd_buffer *const buffers[] = {t.near, t.far, t.pinned, t.unified, t.kept};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        hd_free(buffers[i]);
    }
    hd_hold_destroy(t.hold);
    hd_lane_destroy(t.extra);
    hd_close(s->runtime);
    s->runtime = NULL;
}

void scenario_workers(const scenario *s, int pids[SCENARIO_DEVICES])
{
    for (int i = 0; i < SCENARIO_DEVICES; i++) {
        hd_device_info info = {.size = sizeof info};
        pids[i] = hd_device_get_info(s->runtime, i, &info) == HD_OK ? info.worker_pid : 0;
    }
}

/* ---- work ---- */

static void allocate(scenario *s)
{
    const hd_alloc_options kept = {.size = sizeof kept, .flags = HD_ALLOC_KEEP, .label = "kept"};
    for (int i = 0; i < SCENARIO_DEVICES; i++) {
        t.lanes[i] = conf_default_lane(s->runtime, i);
        if (t.lanes[i] == NULL) {
            hd_error error = {.size = sizeof error};
            hd_last_error(&error);
            step(s, error.status, "hd_lane_get_default");
        }
    }
    STEP(hd_lane_create(s->runtime, 0, &t.extra));
    if (t.lanes[0] != NULL) {
        STEP(hd_alloc(t.lanes[0], BYTES, &t.near));
        STEP(hd_alloc_unified(t.lanes[0], BYTES, &t.unified));
        STEP(hd_alloc_with(t.lanes[0], BYTES, &kept, &t.kept));
    }
    if (t.lanes[1] != NULL) {
        STEP(hd_alloc(t.lanes[1], BYTES, &t.far));
    }
    STEP(hd_alloc_host(s->runtime, BYTES, &t.pinned));
}

static void transfer(scenario *s)
{
    t.near_good = t.near != NULL && STEP(hd_write(t.near, 0, in, BYTES));
    if (t.near_good && t.far != NULL && STEP(hd_copy(t.far, 0, t.near, 0, BYTES, NULL)) &&
        STEP(hd_read(t.far, 0, out, BYTES))) {
        same(s, in, BYTES, "a copy between devices");
    }
    if (t.near_good && t.pinned != NULL && STEP(hd_copy(t.pinned, 0, t.near, 0, BYTES, NULL)) &&
        STEP(hd_read(t.pinned, 0, out, BYTES))) {
        same(s, in, BYTES, "a copy to pinned memory");
    }
    hd_ticket ticket;
    t.kept_good = t.kept != NULL && STEP(hd_write(t.kept, 0, in, BYTES)) && STEP(hd_buffer_save(t.kept, &ticket)) &&
                  STEP(hd_wait(ticket, HD_FOREVER));
}

static void launch(scenario *s)
{
    hd_module *module = NULL;
    hd_kernel *fill = NULL;
    if (t.far == NULL || !STEP(hd_module_get_builtin(s->runtime, &module)) ||
        !STEP(hd_kernel_get(module, "hd_fill_u32", &fill))) {
        return;
    }
    const hd_dims grid = {(WORDS + 255) / 256, 1, 1}, block = {256, 1, 1};
    hd_ticket ticket = {NULL, 0};
    bool good = true;
    for (uint32_t left = LAUNCHES; left > 0 && good; left--) {
        const hd_arg arguments[] = {hd_out(t.far), hd_u64(WORDS), hd_u32(filled[0] + left - 1)};
        good = STEP(hd_launch(t.lanes[1], fill, grid, block, 0, arguments, 3, &ticket));
        if (left == LAUNCHES) { /* the later ones then count as short, and go in chains */
            good = good && STEP(hd_wait(ticket, HD_FOREVER));
        }
    }
    if (good && STEP(hd_wait(ticket, HD_FOREVER)) && STEP(hd_read(t.far, 0, out, BYTES))) {
        same(s, filled, BYTES, "what a kernel wrote");
    }
}

static void use_unified(scenario *s)
{
    void *at = NULL;
    if (t.unified == NULL || !STEP(hd_map(t.unified, HD_WRITE, &at))) {
        return;
    }
    memcpy(at, in, BYTES);
    hd_unmap(t.unified);
    if (t.far != NULL && STEP(hd_copy(t.far, 0, t.unified, 0, BYTES, NULL)) && STEP(hd_read(t.far, 0, out, BYTES))) {
        same(s, in, BYTES, "unified memory");
    }
    if (STEP(hd_fill(t.unified, 0, filled[0], BYTES, NULL))) {
        const uint32_t *element = hd_element(t.unified, 28, sizeof *element, HD_READ);
        if (element != NULL && *element != filled[0]) {
            scenario_wrong(s, "an element of unified memory is wrong");
        }
    }
}

/* Transposes a tensor on its way to another device. */
static void transpose(scenario *s, const hd_tensor *x, const hd_tensor *y)
{
    static float expected[ROWS * COLUMNS];
    hd_tensor turned;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        expected[i] = in[i % ROWS * COLUMNS + i / ROWS];
    }
    if (STEP(hd_tensor_write(x, in)) && STEP(hd_tensor_transpose(x, 0, 1, &turned)) &&
        STEP(hd_tensor_copy(y, &turned, NULL)) && STEP(hd_tensor_read(y, out))) {
        same(s, expected, sizeof expected, "a transposed tensor");
    }
}

static void multiply(scenario *s, const hd_tensor *x)
{
    static float product[ROWS * ROWS];
    const uint64_t square[] = {ROWS, ROWS};
    hd_tensor z, turned;
    if (!STEP(hd_tensor_alloc(t.lanes[0], HD_TYPE_F32, 2, square, &z))) {
        return;
    }
    if (STEP(hd_tensor_write(x, in)) && STEP(hd_tensor_transpose(x, 0, 1, &turned)) &&
        STEP(hd_tensor_matmul(t.lanes[0], &z, x, &turned, 1, 0, NULL)) && STEP(hd_tensor_read(&z, product))) {
        double first = 0;
        for (int i = 0; i < COLUMNS; i++) {
            first += (double)in[i] * in[i];
        }
        if (!(product[0] > 0.999 * first && product[0] < 1.001 * first)) {
            scenario_wrong(s, "a product is %g, not %g", (double)product[0], first);
        }
    }
    hd_free(z.buffer);
}

static void use_tensors(scenario *s)
{
    const uint64_t shape[] = {ROWS, COLUMNS}, turned[] = {COLUMNS, ROWS};
    hd_tensor x, y;
    if (t.lanes[0] == NULL || t.lanes[1] == NULL || !STEP(hd_tensor_alloc(t.lanes[0], HD_TYPE_F32, 2, shape, &x))) {
        return;
    }
    if (STEP(hd_tensor_alloc(t.lanes[1], HD_TYPE_F32, 2, turned, &y))) {
        transpose(s, &x, &y);
        hd_free(y.buffer);
    }
    multiply(s, &x);
    hd_free(x.buffer);
}

static void use_boxes(scenario *s)
{
    const hd_box box = {
        .size = sizeof box, .row = 40, .dims = 1, .count = {100}, .dst_stride = {100}, .src_stride = {200}};
    if (t.far != NULL && STEP(hd_write_box(t.far, 0, in, &box))) {
        const hd_box back = {
            .size = sizeof back, .row = 40, .dims = 1, .count = {100}, .dst_stride = {200}, .src_stride = {100}};
        if (STEP(hd_read_box(t.far, 0, out, &back)) && memcmp((char *)out + 19800, (char *)in + 19800, 40) != 0) {
            scenario_wrong(s, "a box: read with HD_OK, and wrong");
        }
        memset(out, 0, sizeof out);
        if (t.near != NULL) {
            STEP(hd_copy_box(t.near, 0, t.far, 0, &box, NULL));
        }
    }
}

/* Rare requests, and short-lived blocks. */
static void ask(scenario *s)
{
    char report[256];
    size_t needed, freed;
    hd_peer_info peer = {.size = sizeof peer};
    hd_memory_stats stats = {.size = sizeof stats};
    hd_device_info info = {.size = sizeof info};
    STEP(hd_memory_report(s->runtime, HD_REPORT_JSON, report, sizeof report, &needed));
    hd_status status = hd_memory_report_of(getpid(), HD_REPORT_TEXT, report, sizeof report, &needed);
    if (status != HD_ERROR_NOT_FOUND) { /* no memory for the page that others read */
        step(s, status, "hd_memory_report_of");
    }
    STEP(hd_memory_get_stats(s->runtime, 0, &stats));
    STEP(hd_device_get_info(s->runtime, 0, &info));
    if (s->tests_peers) {
        STEP(hd_peer_check(s->runtime, 1, 0, &peer));
    }
    if (STEP(hd_hold_create(s->runtime, &t.hold)) && t.near != NULL) {
        STEP(hd_hold_add(t.hold, t.near));
    }
    for (int i = 0; i < LABELS && t.lanes[0] != NULL; i++) {
        hd_buffer *buffer;
        if (STEP(hd_alloc(t.lanes[i % 2 && t.lanes[1] != NULL], 1000 + (size_t)i * 300000, &buffer))) {
            char label[32];
            snprintf(label, sizeof label, "block %d", i);
            STEP(hd_buffer_set_label(buffer, label));
            hd_free(buffer);
        }
    }
    STEP(hd_memory_trim(s->runtime, 0, 0, &freed));
}

void scenario_work(scenario *s)
{
    static void (*const parts[])(scenario * s) = {allocate, transfer, launch, use_unified, use_tensors, use_boxes, ask};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        parts[i](s);
        tidy_lanes(s);
    }
}

/* ---- losses ---- */

static void short_sleep(void)
{
    const struct timespec moment = {0, 2000000};
    nanosleep(&moment, NULL);
}

static bool has_ended(int pid)
{
    siginfo_t info = {0};
    return pid > 0 && (kill(pid, 0) != 0 ||
                       (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid));
}

void scenario_restart(scenario *s)
{
    for (int i = 0; i < SCENARIO_DEVICES; i++) {
        hd_device_info info = {.size = sizeof info};
        bool known = STEP(hd_device_get_info(s->runtime, i, &info));
        while (known && !info.lost && has_ended(info.worker_pid)) {
            short_sleep();
            known = STEP(hd_device_get_info(s->runtime, i, &info));
        }
        s->lost = s->lost || (known && info.lost);
        bool can_restart = known && info.lost && t.has_workers;
        if (can_restart && !STEP(hd_device_restart(s->runtime, i))) {
            STEP(hd_device_restart(s->runtime, i)); /* a single failure may not repeat */
        }
    }
    hd_device_loss loss = {.size = sizeof loss};
    while (hd_loss_next(s->runtime, &loss) == HD_OK) {
        s->losses++;
    }
    tidy_lanes(s);
    if (s->lost && t.kept_good && STEP(hd_read(t.kept, 0, out, BYTES))) {
        same(s, in, BYTES, "what was kept");
    }
}

void scenario_check_devices(scenario *s)
{
    for (int i = 0; i < SCENARIO_DEVICES; i++) {
        hd_lane *lane = conf_default_lane(s->runtime, i);
        hd_buffer *buffer = NULL;
        hd_status status = lane != NULL ? hd_lane_reset(lane, 60 * SECOND) : HD_ERROR_HANDLE;
        status = status ? status : hd_alloc(lane, BYTES, &buffer);
        status = status ? status : hd_write(buffer, 0, in, BYTES);
        status = status ? status : hd_read(buffer, 0, out, BYTES);
        if (status != HD_OK) {
            scenario_wrong(s, "device %d does not work in the end: %s", i, hd_message());
        } else {
            same(s, in, BYTES, "in the end");
        }
        hd_free(buffer);
    }
}

void scenario_run(scenario *s, const char *settings)
{
    if (!scenario_open(s, settings)) {
        return;
    }
    scenario_work(s);
    int pids[SCENARIO_DEVICES];
    scenario_workers(s, pids);
    if (pids[0] > 0) {
        kill(pids[0], SIGKILL);
    }
    scenario_restart(s);
    scenario_close(s);
}

/* ---- processes ---- */

bool scenario_apart(void (*run)(const void *context), const void *context)
{
    enum { LIMIT_S = 240 };
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(LIMIT_S);
        run(context);
        exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        perror("  a process of its own");
        return false;
    }
    if (status != 0) {
        fprintf(stderr, "    ended with %s %d\n", WIFSIGNALED(status) ? "signal" : "status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    return status == 0;
}

scenario_choice scenario_choose(int one_in)
{
    const char *asked = getenv("HEDDLE_TEST_SWEEP");
    int only = asked != NULL ? atoi(asked) : 0;
    return (scenario_choice){only > 0 ? only : 1, asked != NULL ? 1 : one_in, only > 0};
}

/* ---- resources of a process ---- */

/* True for a thread that the host provider keeps for the next launch. */
static bool is_kept(const char *thread)
{
    char path[320], name[16] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", thread);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool read_it = file >= 0 && read(file, name, sizeof name - 1) > 0;
    close(file);
    return read_it && strcmp(name, "heddle-host\n") == 0;
}

/* Counts the entries of a folder of /proc, without allocating. */
static int count_entries(const char *path)
{
    char bytes[2048];
    int n = 0, folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (long got; (got = syscall(SYS_getdents64, folder, bytes, sizeof bytes)) > 0;) {
        for (long at = 0; at < got; at += ((struct dirent64 *)(void *)(bytes + at))->d_reclen) {
            n += !is_kept(((struct dirent64 *)(void *)(bytes + at))->d_name);
        }
    }
    close(folder);
    return n;
}

scenario_things scenario_count(void)
{
    siginfo_t info = {0};
    bool child = waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) == 0;
    return (scenario_things){count_entries("/proc/self/fd"), count_entries("/proc/self/task"), child};
}

void scenario_check_things(scenario *s, scenario_things before)
{
    scenario_things now = scenario_count();
    for (int i = 0; i < 5000; i++) {
        if (now.descriptors <= before.descriptors && now.threads <= before.threads && !now.children) {
            return;
        }
        short_sleep();
        now = scenario_count();
    }
    scenario_wrong(s, "left: %d descriptors, %d threads, %d children", now.descriptors - before.descriptors,
                   now.threads - before.threads, now.children);
}
