#!/usr/bin/env bash
# test_thread_sanitizer.sh - a program under the thread sanitizer, with the installed library and
# its suppressions.
#
# Promise: With the installed suppressions, the thread sanitizer reports no race in the library, but
# still reports a race in the program.
set -u
source=$1
build=$2
. "$source/tests/support/installed.sh"
needs pkg-config
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

printf 'int main(void)\n{\n    return 0;\n}\n' >none.c
fixed=$(type -P setarch) # the sanitizer does not start if the system randomizes addresses by too many bits
if ! "${CC:-cc}" -fsanitize=thread none.c -o none 2>/dev/null || ! ${fixed:+setarch -R} ./none; then
    echo "skipped: no thread sanitizer here"
    exit 77
fi
cat >program.c <<'C'
#include <heddle.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { N = 1 << 14, THREADS = 4, ROUNDS = 10 };
#define OK(call)                                                                                                       \
    if ((call) != HD_OK) {                                                                                             \
        printf("%s: %s\n", #call, hd_message());                                                                       \
        exit(3);                                                                                                       \
    }
static hd_runtime *runtime;
static int shared;

static hd_status add(void *const *pointers, void *context)
{
    (void)pointers;
    *(int *)context += 1;
    return HD_OK;
}

/* Transfers, a call of a function of the program, and mapped memory: by four threads, each with its own data. */
static void *work(void *argument)
{
    int number = *(int *)argument;
    hd_lane *lane;
    hd_buffer *far, *pinned;
    float *values = malloc(N * sizeof *values);
    OK(hd_lane_create(runtime, number % 2, &lane));
    OK(hd_alloc(lane, N * sizeof *values, &far));
    OK(hd_alloc_host(runtime, N * sizeof *values, &pinned));
    for (int round = 0; round < ROUNDS; round++) {
        int counted = round;
        void *mapped;
        hd_ticket ticket;
        for (int i = 0; i < N; i++) {
            values[i] = (float)(round + number);
        }
        OK(hd_write(far, 0, values, N * sizeof *values));
        OK(hd_copy(pinned, 0, far, 0, N * sizeof *values, NULL));
        memset(values, 0, N * sizeof *values);
        OK(hd_read(pinned, 0, values, N * sizeof *values));
        OK(hd_launch_host(runtime, add, &counted, NULL, 0, &ticket));
        OK(hd_wait(ticket, HD_FOREVER));
        OK(hd_map(pinned, HD_READ_WRITE, &mapped));
        if (values[N - 1] != (float)(round + number) || counted != round + 1 || memcmp(mapped, values, N * sizeof *values) != 0) {
            exit(4);
        }
        ((float *)mapped)[3] = 1;
        OK(hd_unmap(pinned));
    }
    OK(hd_free(far));
    OK(hd_free(pinned));
    OK(hd_lane_destroy(lane));
    free(values);
    return NULL;
}

static void *race(void *unused)
{
    shared++;
    return unused;
}

static void start(void *(*function)(void *))
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, function, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

int main(int argc, char **argv)
{
    (void)argv;
    OK(hd_open(NULL, &runtime));
    start(work);
    if (argc > 1) {
        start(race);
    }
    OK(hd_close(runtime));
    puts("done");
    return 0;
}
C

cmake --install "$build" --prefix "$work/prefix" >/dev/null || fail "the build cannot be installed"
pc=$(dirname "$(find "$work/prefix" -name heddle.pc)")
flags=$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs heddle)
# shellcheck disable=SC2086
"${CC:-cc}" -g -O1 -fsanitize=thread -pthread program.c -o program $flags -Wl,-rpath,"$(dirname "$pc")" || fail "the program does not compile"

# run PLACEMENT [race]: runs the program, and returns its status; its output goes to `out`
run() {
    HEDDLE_DRIVER=host HEDDLE_HOST_DEVICES=2 HEDDLE_CACHE=none HEDDLE_PLACEMENT=$1 \
        TSAN_OPTIONS="suppressions=$work/prefix/share/heddle/tsan.supp" ${fixed:+setarch -R} ./program ${2:+"$2"} >out 2>&1
}
for placement in thread inline; do
    run $placement || fail "$placement: status $?: $(head -40 out)"
    grep -qx "done" out || fail "$placement: it did not get to its end: $(head -40 out)"
    grep -q WARNING out && fail "$placement: false reports: $(head -40 out)"
    run $placement race && fail "$placement: the program's own race costs nothing"
    grep -q '#0 race' out || fail "$placement: the program's own race is not reported: $(head -40 out)"
done
exit $failed
