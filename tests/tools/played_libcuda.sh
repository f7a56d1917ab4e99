# played_libcuda.sh - makes a false libcuda and a false NVML with two devices, which the tool opens
# like NVIDIA's. tests/tools/test_doctor_*.sh source this file.
#
# PLAYED_CUDA chooses the error of the libcuda; without it, the libcuda works.

# play FOLDER: builds both libraries in the folder, so that programs find these
play() {
    cat >"$1/cuda.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int does(const char *what)
{
    const char *how = getenv("PLAYED_CUDA");
    return how && strcmp(how, what) == 0;
}
__attribute__((constructor)) static void load(void)
{
    if (does("load"))
        exit(3);
}
static int fails(void) { return 999; }
static int init(unsigned flags)
{
    (void)flags;
    puts("libcuda prints");
    if (does("leave"))
        exit(0);
    if (does("crash"))
        abort();
    for (int i = 0; i < 64 && does("close"); i++)
        close(i);
    for (int i = 3; i < 64 && does("chatter"); i++)
        if (write(i, "nonsense\n", 9) < 0)
            continue;
    while (does("hang"))
        pause();
    return does("fails") ? 999 : does("stub") ? 34 : 0;
}
static int version(int *out) { *out = does("many") ? -7 : 13000; return 0; }
static int count(int *out) { *out = does("many") ? 2000000000 : does("less") ? -5 : 2; return does("count") ? 999 : 0; }
static int get(int *out, int i) { *out = i; return does("half") && i ? 101 : 0; }
static int name(char *out, int n, int i)
{
    (void)i;
    does("many") ? (void)memset(out, 27, n) : (void)snprintf(out, n, "Played GPU");
    return 0;
}
static int bus(char *out, int n, int i)
{
    does("many") ? (void)memset(out, 0xfe, n) : (void)snprintf(out, n, "0000:A%d:00.0", i + 1);
    return 0;
}
static int uuid(void *out, int i) { memset(out, i, 16); return 0; }
static int access_peer(int *out, int a, int b) { (void)a, (void)b; *out = 77; return 0; }
#define ENTRY(called, function) {called, (void (*)(void))function}
int cuGetProcAddress_v2(const char *symbol, void **out, int of, unsigned long long flags, int *found)
{
    static const struct { const char *name; void (*function)(void); } list[] = {
        ENTRY("cuInit", init), ENTRY("cuDriverGetVersion", version), ENTRY("cuDeviceGetCount", count), ENTRY("cuDeviceGet", get),
        ENTRY("cuDeviceGetName", name), ENTRY("cuDeviceGetPCIBusId", bus), ENTRY("cuDeviceGetUuid", uuid),
        ENTRY("cuDeviceCanAccessPeer", access_peer)};
    (void)of, (void)flags;
    void (*function)(void) = (void (*)(void))fails;
    for (unsigned i = 0; i < sizeof list / sizeof list[0]; i++)
        if (strcmp(symbol, list[i].name) == 0)
            function = list[i].function;
    memcpy(out, &function, sizeof function);
    *found = does("few");
    return 0;
}
END
    cat >"$1/nvml.c" <<'END'
#include <stdio.h>
typedef struct { char old[16]; unsigned n[5]; char bus[32]; } pci;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(size_t)(i + 1); return 0; }
int nvmlDeviceGetPciInfo_v3(void *d, pci *p) { sprintf(p->bus, "00000000:A%zu:00.0", (size_t)d); return 0; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *next) { *now = *next = d == (void *)2; return 0; }
END
    "${CC:-cc}" -shared -fPIC -o "$1/libcuda.so.1" "$1/cuda.c" && "${CC:-cc}" -shared -fPIC -o "$1/libnvidia-ml.so.1" "$1/nvml.c" || return 1
    export HEDDLE_DRIVER=nvidia LD_LIBRARY_PATH=$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}
