/* tensor_peers.c - the same rows in PyTorch and CuPy: runs the scripts in bench/peers and reads
 * their figures.
 *
 * Threads: the conductor. Locks: none.
 * Always: a script runs alone, in a separate process that is killed if it takes too long. A missing
 * or failing script affects only its own figures. The scripts see only the GPU that the benchmark
 * uses.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cli/common/machine.h"
#include "cli/common/place.h"
#include "bench/tensor_parts.h"

enum { ARGUMENTS_MAX = TENSOR_ROWS_MAX + TENSOR_PRODUCTS + 4, OUTPUT_MAX = 1 << 16, ROW_TEXT = 160, SKIPPED = 77 };

/* time limit of one script, including the import of PyTorch */
static const int64_t most_ms = 60000;

/* ---- the rows ---- */

static size_t bench_list_numbers(char *out, size_t room, const char *between, const uint64_t *n, const int *order,
                                 int count)
{
    size_t used = 0;
    for (int i = 0; i < count && used < room; i++) {
        uint64_t value = n ? n[i] : (uint64_t)order[i];
        used += (size_t)snprintf(out + used, room - used, "%s%llu", i ? between : "", (unsigned long long)value);
    }
    return used;
}

/* "ID=f32:4096x4096:1,0", or "ID=f32:4096" for a product. */
static int bench_make_arguments(const tensor_experiment *x, char texts[][ROW_TEXT], char **out)
{
    int n = 0;
    for (int i = 0; i < x->n_rows; i++) {
        const tensor_row *row = &x->rows[i];
        const tensor_spec *s = row->spec;
        if (row->measured && !s->step && !s->broadcast[0] && !s->src_skip) {
            char shape[64], order[32];
            bench_list_numbers(shape, sizeof(shape), "x", row->shape, NULL, s->dims);
            bench_list_numbers(order, sizeof(order), ",", NULL, s->order, s->dims);
            snprintf(texts[n], ROW_TEXT, "%s=%s:%s:%s", s->id, hd_type_name(s->type), shape, order);
            out[n] = texts[n];
            n++;
        }
    }
    for (int i = 0; i < x->n_products; i++) {
        const tensor_product *p = &x->products[i];
        if (p->measured) {
            snprintf(texts[n], ROW_TEXT, "%s=%s:%llu", p->id, hd_type_name(p->type), (unsigned long long)p->edge);
            out[n] = texts[n];
            n++;
        }
    }
    out[n] = NULL;
    return n;
}

/* The environment with CUDA_VISIBLE_DEVICES, malloc'd. `ours` holds the new variable. */
static char **bench_make_environment(char *ours)
{
    size_t n = 0, kept = 0;
    while (environ[n]) {
        n++;
    }
    char **out = malloc((n + 2) * sizeof(*out));
    for (size_t i = 0; out && i < n; i++) {
        if (strncmp(environ[i], "CUDA_VISIBLE_DEVICES=", 21) != 0) {
            out[kept++] = environ[i];
        }
    }
    if (out) {
        out[kept++] = ours;
        out[kept] = NULL;
    }
    return out;
}

/* ---- running ---- */

static pid_t bench_start(char *const *arguments, char *const *environment, int *output)
{
    int ends[2];
    pid_t child = -1;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    /* so that all its processes can be killed with it */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    if (posix_spawnp(&child, arguments[0], &actions, &attributes, arguments, environment) != 0) {
        child = -1;
    }
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
    }
    *output = ends[0];
    return child;
}

/* Reads the output until it ends or time is up; false if time is up. */
static bool bench_read_output(int output, char *out, size_t room)
{
    uint64_t end = cli_stats_monotonic() + (uint64_t)most_ms * 1000000;
    size_t used = 0;
    for (;;) {
        int64_t left = ((int64_t)end - (int64_t)cli_stats_monotonic()) / 1000000;
        struct pollfd ready = {.fd = output, .events = POLLIN};
        int n = left > 0 ? poll(&ready, 1, (int)left) : 0;
        if (n < 0 && errno == EINTR) {
            continue;
        }
        char ignored[256];
        bool full = used + 1 >= room;
        ssize_t got = n > 0 ? read(output, full ? ignored : out + used, full ? sizeof(ignored) : room - 1 - used) : -1;
        if (got > 0) {
            used += full ? 0 : (size_t)got;
            continue;
        }
        out[used] = 0;
        return n > 0 && got == 0;
    }
}

/* Returns the script's exit status, -1 if it could not be run, or -2 if it took too long. */
static int bench_run_script(const tensor_experiment *x, char **arguments, char *out, size_t room)
{
    char visible[80] = "CUDA_VISIBLE_DEVICES=";
    cli_machine_uuid_text(x->device.uuid, visible + strlen(visible));
    char **environment = bench_make_environment(visible);
    int output, status = 0;
    pid_t child = environment ? bench_start(arguments, environment, &output) : -1;
    free(environment);
    if (child < 0) {
        return -1;
    }
    bool ended = bench_read_output(output, out, room);
    if (!ended) {
        kill(-child, SIGKILL);
    }
    close(output);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return !ended ? -2 : WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- figures ---- */

/* The text after `"KEY": "` in a flat line of JSON; false if there is none. */
static bool bench_find_text(const char *line, const char *key, char *out, size_t room)
{
    char wanted[32];
    snprintf(wanted, sizeof(wanted), "\"%s\": \"", key);
    const char *at = strstr(line, wanted);
    size_t length = at ? strcspn(at + strlen(wanted), "\"") : 0;
    if (at) {
        snprintf(out, room, "%.*s", (int)(length < room ? length : room - 1), at + strlen(wanted));
    }
    return at != NULL;
}

static double bench_find_number(const char *line, const char *key)
{
    char wanted[32];
    snprintf(wanted, sizeof(wanted), "\"%s\": ", key);
    const char *at = strstr(line, wanted);
    char *end;
    double value = at ? strtod(at + strlen(wanted), &end) : NAN;
    return at && end != at + strlen(wanted) ? value : NAN;
}

static void bench_take_line(tensor_experiment *x, int peer, const char *line)
{
    char row[64], version[64];
    if (bench_find_text(line, "version", version, sizeof(version))) {
        memcpy(x->peer_versions[peer], version, sizeof(version));
    }
    if (!bench_find_text(line, "row", row, sizeof(row))) {
        return;
    }
    tensor_peer found = {bench_find_number(line, "gbs"), bench_find_number(line, "ratio")};
    for (int i = 0; i < x->n_rows; i++) {
        if (strcmp(x->rows[i].spec->id, row) == 0) {
            x->rows[i].peers[peer] = found;
        }
    }
    for (int i = 0; i < x->n_products; i++) {
        if (strcmp(x->products[i].id, row) == 0) {
            x->products[i].peers[peer] = (tensor_peer){bench_find_number(line, "gflops"), NAN};
        }
    }
}

static void bench_run_peer(tensor_experiment *x, int peer)
{
    static char texts[ARGUMENTS_MAX][ROW_TEXT], output[OUTPUT_MAX];
    char *arguments[ARGUMENTS_MAX + 3], python[] = "python3", folder[512], script[600];
    char *note = x->peer_notes[peer];
    size_t room = sizeof(x->peer_notes[peer]);
    bool here = cli_place_find("bench/peers", NULL, NULL, folder, sizeof(folder));
    snprintf(script, sizeof(script), "%s/tensor_%s.py", here ? folder : "", tensor_peer_ids[peer]);
    if (!here || access(script, R_OK) != 0) {
        snprintf(note, room, "bench/peers is not here");
        return;
    }
    arguments[0] = python, arguments[1] = script;
    if (bench_make_arguments(x, texts, arguments + 2) == 0) {
        snprintf(note, room, "no row is for it");
        return;
    }
    int status = bench_run_script(x, arguments, output, sizeof(output));
    for (char *line = strtok(output, "\n"); line && status != -1; line = strtok(NULL, "\n")) {
        bench_take_line(x, peer, line);
    }
    if (status == SKIPPED) {
        snprintf(note, room, "python3 has no %s that works with this GPU", tensor_peer_names[peer]);
    } else if (status == -2) {
        snprintf(note, room, "took more than %d s", (int)(most_ms / 1000));
    } else if (status != 0) {
        snprintf(note, room, status < 0 ? "python3 could not be run" : "the script failed with exit status %d", status);
    }
}

void bench_tensor_run_peers(tensor_experiment *x)
{
    for (int i = 0; i < TENSOR_PEERS; i++) {
        if (x->on_host) {
            snprintf(x->peer_notes[i], sizeof(x->peer_notes[i]), "for GPUs only");
        } else {
            cli_report_progress(&x->options->run, "peers", tensor_peer_names[i],
                                x->steps ? (double)x->steps_done / x->steps : 0);
            bench_run_peer(x, i);
        }
    }
    bench_tensor_step(x, "peers", "");
}
