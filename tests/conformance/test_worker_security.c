/* test_worker_security.c - names, memory and descriptors of the application and its workers.
 *
 * Promise: Applications and workers share only sealed memory and private descriptors, no names.
 *
 * - no names in /dev/shm, and sealed shared memory
 * - descriptors that stay in the process
 * - no part of the driver in the application, and none of the application in the workers
 *
 * Threads: one that opens and closes runtimes while others start programs.
 * Locks: none.
 * Processes: the started programs are this one again: they report their open descriptors.
 * Always: the checks read /proc, of this process and of the workers.
 */
#include "workers.h"

enum { words = 5000, bytes = words * 4 };

/* Opens a runtime with everything in use: code, device memory mapped by peers, pinned memory,
 * checkpoints, and one restart. */
static hd_runtime *in_use(hd_buffer **out_pinned)
{
    hd_runtime *runtime = conf_open(NULL);
    wk_kernels k = wk_load(runtime);
    conf_kernels builtin = conf_builtins(runtime);
    hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
    int count = hd_device_count(runtime);
    wk_descriptor(runtime);
    CONF_OK(hd_alloc_host(runtime, bytes, out_pinned));
    wk_lose_now(runtime, count - 1);
    CONF_OK(hd_device_restart(runtime, count - 1));
    for (int d = 0; d < count; d++) {
        hd_lane *lane = conf_default_lane(runtime, d);
        hd_buffer *x = NULL, *y = NULL, *z = NULL;
        CONF_OK(hd_alloc_with(lane, bytes, &keep, &x));
        CONF_OK(hd_alloc(conf_default_lane(runtime, (d + 1) % count), bytes, &y));
        CONF_OK(hd_alloc(lane, 3 << 20, &z));
        CONF_OK(conf_fill(lane, builtin, x, 0, words, 5, NULL));
        if (k.module != NULL) {
            CONF_OK(wk_add_one(lane, k, x, words, NULL));
        }
        CONF_OK(hd_buffer_save(x, NULL));
        CONF_OK(hd_copy(y, 0, x, 0, bytes, NULL));
        CONF_OK(hd_copy(*out_pinned, 0, y, 0, bytes, NULL));
        if (conf_reaches(runtime, d, (d + 1) % count)) {
            CONF_OK(conf_copy(lane, builtin, x, 0, y, 0, words, NULL));
        }
        CONF_FILLED(*out_pinned, 0, k.module != NULL ? 6 : 5, bytes);
        CONF_OK(hd_fill(z, 0, 1, 3 << 20, NULL));
        CONF_FILLED(z, 0, 1, 3 << 20);
    }
    return runtime;
}

/* ---- shared memory ---- */

/* One mapping of a process, from its list. */
typedef struct mapping {
    char address[64], permissions[8], path[512];
    unsigned long inode;
} mapping;

static bool parse(const char *line, mapping *out)
{
    out->path[0] = '\0';
    return sscanf(line, "%63s %7s %*s %*s %lu %511[^\n]", out->address, out->permissions, &out->inode, out->path) >= 3;
}

/* Returns the seals of the anonymous file with that inode, from a descriptor of the process. -1: no
 * descriptor of the process is that file. */
static int seals_by_descriptor(pid_t pid, unsigned long inode, struct stat *about)
{
    char folder[64], path[400];
    int seals = -1;
    snprintf(folder, sizeof folder, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; seals < 0 && dir != NULL && (entry = readdir(dir)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (stat(path, about) != 0 || about->st_ino != inode || !S_ISREG(about->st_mode)) {
            continue;
        }
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            seals = fcntl(file, F_GET_SEALS);
            close(file);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return seals;
}

/* The same through the mapping itself, if the system allows it. -1: it does not. */
static int seals_by_mapping(pid_t pid, const char *address, struct stat *about)
{
    char path[200];
    snprintf(path, sizeof path, "/proc/%d/map_files/%s", (int)pid, address);
    int file = open(path, O_RDONLY | O_CLOEXEC), seals = -1;
    if (file >= 0) {
        if (fstat(file, about) == 0) {
            seals = fcntl(file, F_GET_SEALS);
        }
        close(file);
    }
    return seals;
}

/* Checks that shared mappings are of anonymous files without a name, which no process can make
 * smaller or larger. Returns how many it could check. */
static int check_mappings(pid_t pid, const char *whose)
{
    char path[64], line[1024];
    int looked = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *file = fopen(path, "re");
    CONF_TRUE(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        mapping m;
        if (!parse(line, &m)) {
            continue;
        }
        if (strstr(m.path, "/dev/shm") != NULL || strncmp(m.path, "/SYSV", 5) == 0) {
            conf_fail_at(__FILE__, __LINE__, "%s maps shared memory with a name: %s", whose, line);
        }
        if (strstr(m.path, "nvidia") != NULL || strstr(m.path, "/dev/zero") != NULL) {
            /* a worker's driver maps its own shared memory, some of it without any file */
            continue;
        }
        bool anonymous = strncmp(m.path, "/memfd:", 7) == 0;
        if (m.permissions[3] != 's' || m.inode == 0 || !(anonymous || strstr(m.path, "(deleted)") != NULL)) {
            continue; /* private, or of a device file */
        }
        struct stat about;
        int seals = seals_by_descriptor(pid, m.inode, &about);
        seals = seals < 0 ? seals_by_mapping(pid, m.address, &about) : seals;
        if (seals < 0) {
            continue; /* no right to look */
        }
        looked++;
        if ((seals & F_SEAL_SHRINK) == 0 || (seals & F_SEAL_GROW) == 0) {
            conf_fail_at(__FILE__, __LINE__, "%s: seals %x of %s", whose, seals, line);
        }
        CONF_EQUAL(about.st_nlink, 0);
        if ((about.st_mode & 0077) != 0 && !anonymous) {
            conf_fail_at(__FILE__, __LINE__, "%s: mode %o of %s", whose, (unsigned)about.st_mode, line);
        }
    }
    fclose(file);
    return looked;
}

/* Returns how many names of a folder's entries contain "heddle". */
static int names_in(const char *folder)
{
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        n += strstr(entry->d_name, "heddle") != NULL;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

static void shared_memory_has_seals_and_no_names(void **state)
{
    (void)state;
    int names = names_in("/dev/shm");
    hd_buffer *pinned = NULL;
    hd_runtime *runtime = in_use(&pinned);
    CONF_EQUAL(names_in("/dev/shm"), names);
    int mine = check_mappings(getpid(), "the application");
    CONF_TRUE(mine >= hd_device_count(runtime)); /* a channel for each */
    for (int d = 0; d < hd_device_count(runtime); d++) {
        check_mappings(wk_pid(runtime, d), "a worker");
    }
    conf_close(runtime);
    CONF_EQUAL(names_in("/dev/shm"), names);
}

/* ---- descriptors ---- */

enum { most = 1024 };

/* Marks the open descriptors of this process. */
static void descriptors_of_mine(bool *out)
{
    memset(out, 0, most * sizeof *out);
    for (int i = 0; i < most; i++) {
        out[i] = fcntl(i, F_GETFD) >= 0;
    }
}

/* Starts this program again with all inheritable descriptors. The new process reports its open
 * ones. */
static void descriptors_of_a_child(char *out, size_t out_bytes)
{
    char program[] = "/proc/self/exe", option[] = "--descriptors";
    char *arguments[] = {program, option, NULL};
    int ends[2], status = -1;
    CONF_EQUAL(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    pid_t child = 0;
    CONF_EQUAL(posix_spawn(&child, program, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    size_t got = 0;
    for (ssize_t n; got + 1 < out_bytes && (n = read(ends[0], out + got, out_bytes - 1 - got)) > 0;) {
        got += (size_t)n;
    }
    out[got] = '\0';
    close(ends[0]);
    CONF_TRUE(waitpid(child, &status, 0) == child && status == 0);
}

static int tell_descriptors(void)
{
    for (int i = 0; i < most; i++) {
        if (fcntl(i, F_GETFD) >= 0) {
            printf("%d ", i);
        }
    }
    return 0;
}

static void descriptors_stay_in_the_application(void **state)
{
    (void)state;
    static bool before[most], during[most];
    static char child_before[4096], child_during[4096];
    descriptors_of_mine(before);
    descriptors_of_a_child(child_before, sizeof child_before);
    hd_buffer *pinned = NULL;
    hd_runtime *runtime = in_use(&pinned);
    descriptors_of_mine(during);
    int n = 0;
    for (int i = 0; i < most; i++) {
        if (during[i] && !before[i]) {
            n++;
            CONF_TRUE((fcntl(i, F_GETFD) & FD_CLOEXEC) != 0);
            CONF_TRUE(i > 2);
        }
    }
    CONF_TRUE(n > 0); /* the lines to the workers */
    descriptors_of_a_child(child_during, sizeof child_during);
    assert_string_equal(child_during, child_before);
    int children = conf_children();
    CONF_EQUAL(children, hd_device_count(runtime));
    conf_close(runtime);
    descriptors_of_mine(during);
    CONF_EQUAL(memcmp(during, before, sizeof before), 0);
}

static void *opens_and_closes(void *argument)
{
    atomic_bool *stop = argument;
    while (!atomic_load(stop)) {
        hd_runtime *runtime = NULL;
        hd_buffer *x = NULL;
        const hd_options options = {.size = sizeof options, .settings = "host_devices=2"};
        CONF_OK(hd_open(&options, &runtime));
        CONF_OK(hd_alloc_host(runtime, bytes, &x));
        wk_lose_now(runtime, 0);
        CONF_OK(hd_device_restart(runtime, 0));
        hd_close(runtime);
    }
    return NULL;
}

/* At no moment does a descriptor lack close-on-exec. */
static void children_started_meanwhile_see_nothing(void **state)
{
    (void)state;
    static char before[4096], during[4096];
    atomic_bool stop = false;
    pthread_t thread;
    descriptors_of_a_child(before, sizeof before);
    conf_failure_ends_program = true;
    CONF_EQUAL(pthread_create(&thread, NULL, opens_and_closes, &stop), 0);
    for (int i = 0; i < (CONF_SLOWNESS > 1 ? 30 : 200); i++) {
        descriptors_of_a_child(during, sizeof during);
        if (strcmp(before, during) != 0) {
            conf_fail_at(__FILE__, __LINE__, "a child has the descriptors %s, not %s", during, before);
        }
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    conf_failure_ends_program = false;
}

/* True if a descriptor of the process has that link. */
static bool has_link(pid_t pid, const char *link)
{
    char folder[64], path[400], target[512];
    bool found = false;
    snprintf(folder, sizeof folder, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(folder);
    CONF_TRUE(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n > 0) {
            target[n] = '\0';
            found = found || strcmp(target, link) == 0;
        }
    }
    closedir(dir);
    return found;
}

/* Workers inherit no descriptor of the application, not even without close-on-exec. Nor does one
 * worker hold the socket of another. */
static void workers_have_nothing_of_the_application(void **state)
{
    (void)state;
    char name[] = "/tmp/heddle-test-XXXXXX", self[64], link[512];
    int file = mkstemp(name), ends[2], high;
    CONF_TRUE(file >= 0 && pipe(ends) == 0); /* all of them inheritable */
    high = fcntl(file, F_DUPFD, 500);
    CONF_TRUE(high >= 500);
    hd_buffer *pinned = NULL;
    hd_runtime *runtime = in_use(&pinned);
    const int mine[] = {file, ends[0], ends[1], high};
    for (int d = 0; d < hd_device_count(runtime); d++) {
        pid_t pid = wk_pid(runtime, d);
        for (int i = 0; i < 4; i++) {
            snprintf(self, sizeof self, "/proc/self/fd/%d", mine[i]);
            ssize_t n = readlink(self, link, sizeof link - 1);
            CONF_TRUE(n > 0);
            link[n] = '\0';
            if (has_link(pid, link)) {
                conf_fail_at(__FILE__, __LINE__, "the worker of device %d has %s of the application", d, link);
            }
        }
    }
    /* each socket of the application leads to one worker only: the sockets of two workers differ */
    for (int d = 1; d < hd_device_count(runtime); d++) {
        char folder[64], path[400], target[512];
        snprintf(folder, sizeof folder, "/proc/%d/fd", (int)wk_pid(runtime, d));
        DIR *dir = opendir(folder);
        CONF_TRUE(dir != NULL);
        for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            ssize_t n = readlink(path, target, sizeof target - 1);
            target[n > 0 ? n : 0] = '\0';
            if (strncmp(target, "socket:", 7) == 0 && has_link(wk_pid(runtime, 0), target)) {
                conf_fail_at(__FILE__, __LINE__, "the workers of devices 0 and %d both have %s", d, target);
            }
            CONF_TRUE(strncmp(target, "socket:", 7) != 0 || !has_link(getpid(), target));
        }
        closedir(dir);
    }
    conf_close(runtime);
    close(ends[0]);
    close(ends[1]);
    close(file);
    close(high);
    unlink(name);
}

/* ---- the driver is elsewhere ---- */

/* Counts the threads of this process whose name begins like that. */
static int threads_named(const char *prefix)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char path[400], name[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (file != NULL) {
            n += fgets(name, sizeof name, file) != NULL && strncmp(name, prefix, strlen(prefix)) == 0;
            fclose(file);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

/* Counts the executable mappings of this process. *out: true if any mapping is of a file whose name
 * contains `word`. */
static int executable_mappings(const char *word, bool *out)
{
    char line[1024];
    int n = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    *out = false;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        mapping m;
        if (parse(line, &m)) {
            n += m.permissions[2] == 'x';
            *out = *out || strstr(m.path, word) != NULL;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return n;
}

static void the_application_has_no_driver(void **state)
{
    (void)state;
    bool libcuda = false, nvidia = false;
    int threads = wk_use().threads, code = executable_mappings("libcuda", &libcuda);
    CONF_TRUE(!libcuda);
    hd_buffer *pinned = NULL;
    hd_runtime *runtime = in_use(&pinned);
    int code_now = executable_mappings("libcuda", &libcuda);
    CONF_TRUE(!libcuda);
    executable_mappings("/dev/nvidia", &nvidia);
    CONF_TRUE(!nvidia);
    CONF_TRUE(!has_link(getpid(), "/dev/nvidiactl") && !has_link(getpid(), "/dev/nvidia-uvm") &&
              !has_link(getpid(), "/dev/nvidia0"));
    CONF_EQUAL(threads_named("heddle-host"), 0);
    /* threads that watch, not that work */
    CONF_TRUE(wk_use().threads <= threads + 1 + hd_device_count(runtime));
    if (CONF_SLOWNESS == 1 && code_now != code) { /* kernels are loaded in the workers */
        conf_fail_at(__FILE__, __LINE__, "%d executable mappings, not %d", code_now, code);
    }
    conf_close(runtime);
    wk_await_threads(threads);
}

/* Another user's process may not read the application's memory. Shared memory is nameless, and the
 * application's owner owns the workers' /proc entries. */
static void workers_belong_to_the_same_user(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    for (int d = 0; d < hd_device_count(runtime); d++) {
        char path[64];
        struct stat about;
        snprintf(path, sizeof path, "/proc/%d", (int)wk_pid(runtime, d));
        CONF_EQUAL(stat(path, &about), 0);
        CONF_EQUAL(about.st_uid, geteuid());
        CONF_EQUAL(getsid(wk_pid(runtime, d)), getsid(0));
    }
    conf_close(runtime);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--descriptors") == 0) {
        return tell_descriptors();
    }
    wk_begin("test_worker_security");
    const struct CMUnitTest tests[] = {
        CONF_CASE(shared_memory_has_seals_and_no_names),   CONF_CASE(descriptors_stay_in_the_application),
        CONF_CASE(children_started_meanwhile_see_nothing), CONF_CASE(workers_have_nothing_of_the_application),
        CONF_CASE(the_application_has_no_driver),          CONF_CASE(workers_belong_to_the_same_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
