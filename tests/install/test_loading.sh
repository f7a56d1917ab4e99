#!/usr/bin/env bash
# test_loading.sh - programs load the library while they run: beside other libraries with static
# thread-local storage, several times, as part of a plugin that is closed after threads used it, and
# with a runtime that is still open.
#
# Promise: A program can load, use and unload the library while it runs, any number of times.
set -eu
source=$1
build=$2
library=$build/libheddle.so
export HEDDLE_DRIVER=host HEDDLE_HOST_DEVICES=2 HEDDLE_CACHE=none
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

compile() {
    "${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -O1 -I"$source/include" "$@"
}

# The file shows the thread-local storage: only pointers and flags, some of them for the checks of a
# debug build. The system need not make any storage when a thread first uses it.
bytes=$(($(readelf -lW "$library" | awk '$1 == "TLS" {print $6}')))
if [ "$bytes" -gt 136 ]; then
    echo "libheddle.so has $bytes bytes of static thread-local storage; the programs that load it have some 1600 for everybody"
    exit 1
fi
if readelf -rW "$library" | grep -E 'DTPMOD|TLSDESC'; then
    echo "libheddle.so has thread-local storage that is not static"
    exit 1
fi

# Beside other libraries: as many of them as fit, if 192 bytes stay free.
cat >other.c <<'C'
__thread char block[64] __attribute__((tls_model("initial-exec")));
int use(void);
int use(void)
{
    return block[1]++;
}
C
cat >beside.c <<'C'
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
/* beside N LIBRARY: opens N others and then the library; prints how many of the others could be opened. */
int main(int argc, char **argv)
{
    int n = 0, most = atoi(argv[1]);
    for (char path[64]; n < most; n++) {
        snprintf(path, sizeof path, "./other-%d.so", n);
        if (!dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
            break;
        }
    }
    printf("%d\n", n);
    void *library = argc > 2 ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (argc > 2 && !library) {
        printf("%s\n", dlerror());
    }
    return argc > 2 && !library;
}
C
compile -shared -fPIC -o other.so other.c
compile -o beside beside.c -ldl
for i in $(seq 0 255); do
    cp other.so "other-$i.so"
done
fit=$(./beside 256)
if [ "$fit" -lt 256 ]; then # otherwise this C library sets no such limit
    [ "$fit" -gt 4 ]
    ./beside $((fit - 3)) "$library"
fi
rm -f other-*.so

# A program with plugins. Each plugin uses the library for itself.
cat >plugin.c <<'C'
#include <heddle.h>
#include <stdio.h>
#define PUBLIC __attribute__((visibility("default")))
static hd_runtime *runtime;
PUBLIC const char *plugin_open(void);
PUBLIC const char *plugin_use(void);
PUBLIC void plugin_close(void);
const char *plugin_open(void)
{
    return hd_open(NULL, &runtime) ? hd_message() : NULL;
}
/* Leaves something of every kind in the calling thread: lanes, freed memory, a failure, a kernel's stack. */
const char *plugin_use(void)
{
    float x[100], y[100];
    for (int device = 0; device < hd_device_count(runtime); device++) {
        hd_lane *lane;
        hd_buffer *a, *b;
        hd_ticket ticket;
        if (hd_lane_get_default(runtime, device, &lane) || hd_alloc(lane, sizeof x, &a) || hd_alloc(lane, sizeof y, &b) || hd_fill(a, 0, 0x3f800000, sizeof x, NULL) ||
            hd_copy(b, 0, a, 0, sizeof y, &ticket) || hd_wait(ticket, HD_FOREVER) || hd_read(b, 0, y, sizeof y)) {
            return hd_message();
        }
        hd_free(a);
        hd_free(b);
        if (y[99] != 1.0f || hd_read(b, 0, x, 4) == HD_OK) {
            return "wrong result";
        }
    }
    return NULL;
}
void plugin_close(void)
{
    hd_close(runtime);
}
C
cat >host.c <<'C'
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* host PLUGIN close|keep: opens it, uses it from two threads that go on, closes it, ends the threads; twice. */
static const char *(*use)(void);
static pthread_barrier_t used, gone;
static void check(const char *what, const char *message)
{
    if (message) {
        printf("%s: %s\n", what, message);
        exit(1);
    }
}
static void *thread(void *unused)
{
    (void)unused;
    check("plugin_use in a thread", use());
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&gone);
    return NULL;
}
int main(int argc, char **argv)
{
    int keep = argc > 2 && strcmp(argv[2], "keep") == 0;
    pthread_barrier_init(&used, NULL, 3);
    pthread_barrier_init(&gone, NULL, 3);
    for (int round = 0; round < 2; round++) {
        void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!plugin) {
            check("dlopen", dlerror());
        }
        const char *(*open_it)(void) = (const char *(*)(void))dlsym(plugin, "plugin_open");
        void (*close_it)(void) = (void (*)(void))dlsym(plugin, "plugin_close");
        use = (const char *(*)(void))dlsym(plugin, "plugin_use");
        check("plugin_open", open_it());
        check("plugin_use", use());
        pthread_t threads[2];
        for (int i = 0; i < 2; i++) {
            pthread_create(&threads[i], NULL, thread, NULL);
        }
        pthread_barrier_wait(&used);
        if (!keep) {
            close_it();
        }
        dlclose(plugin);
        pthread_barrier_wait(&gone);
        for (int i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    return 0;
}
C
compile -o host host.c -ldl -pthread
compile -shared -fPIC -fvisibility=hidden -o shared.so plugin.c -L"$build" -lheddle -Wl,-rpath,"$build"
compile -shared -fPIC -fvisibility=hidden -o static.so plugin.c "$build/libheddle.a" -Wl,--exclude-libs,ALL -ldl -pthread
for plugin in shared static; do
    for runtime in close keep; do
        for placement in inline thread process; do
            HEDDLE_PLACEMENT=$placement HEDDLE_WORKER=$build/heddle-worker timeout 120 ./host "./$plugin.so" "$runtime" || {
                echo "host ./$plugin.so $runtime, placement $placement: status $?"
                exit 1
            }
        done
    done
done

# Two copies of the library in one program: one in a plugin, and one in the program itself.
cat >both.c <<'C'
#include <dlfcn.h>
#include <heddle.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    hd_runtime *runtime;
    if (!plugin || hd_open(NULL, &runtime)) {
        return 1;
    }
    const char *message = ((const char *(*)(void))dlsym(plugin, "plugin_open"))();
    message = message ? message : ((const char *(*)(void))dlsym(plugin, "plugin_use"))();
    if (message) {
        printf("%s\n", message);
        return 1;
    }
    ((void (*)(void))dlsym(plugin, "plugin_close"))();
    dlclose(plugin);
    hd_lane *lane;
    hd_buffer *buffer;
    int failed = hd_lane_get_default(runtime, 0, &lane) || hd_alloc(lane, 100, &buffer);
    hd_close(runtime);
    return failed;
}
C
compile -o both both.c -L"$build" -lheddle -Wl,-rpath,"$build" -ldl
./both ./static.so
./both ./shared.so
