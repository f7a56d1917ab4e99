/* mapping_costs.c - measures the calls of NVIDIA's driver that map physical memory, by the size of
 * a handle.
 *
 * usage: mapping_costs
 *
 * The arena's granule follows from these figures (src/memory/arena.c). For each size, the program
 * makes as many handles as fill half a GiB, maps them side by side, and unmaps and releases them.
 * It does so twice, and prints the second time as a JSON line: the microseconds of each call, for
 * one handle. The last line tells if the driver maps a handle from an offset on, or unmaps a part
 * of a mapping. If it did either, a large handle could serve several blocks.
 * Exit status: 0; 1 if a call fails.
 *
 * Threads: the main one. Locks: none.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define ALL (512 * MIB)
#define HANDLES_MOST 256

#define NEED(call) need((call), #call)

static void need(CUresult code, const char *call)
{
    if (code != CUDA_SUCCESS) {
        fprintf(stderr, "mapping_costs: %s: error %d\n", call, (int)code);
        exit(1);
    }
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static CUdeviceptr range;
static CUmemAllocationProp memory;
static CUmemAccessDesc reader;
static CUmemGenericAllocationHandle handles[HANDLES_MOST];

static void one_size(size_t bytes)
{
    double at[6];
    size_t n = ALL / bytes;
    for (int time = 0; time < 2; time++) {
        at[0] = now_us();
        for (size_t i = 0; i < n; i++) {
            NEED(cuMemCreate(&handles[i], bytes, &memory, 0));
        }
        at[1] = now_us();
        for (size_t i = 0; i < n; i++) {
            NEED(cuMemMap(range + i * bytes, bytes, 0, handles[i], 0));
        }
        at[2] = now_us();
        NEED(cuMemSetAccess(range, ALL, &reader, 1));
        at[3] = now_us();
        NEED(cuMemUnmap(range, ALL));
        at[4] = now_us();
        for (size_t i = 0; i < n; i++) {
            NEED(cuMemRelease(handles[i]));
        }
        at[5] = now_us();
    }
    double each = 1.0 / (double)n;
    printf("{\"handle_mib\": %zu, \"create_us\": %.1f, \"map_us\": %.1f, \"access_us\": %.1f, \"unmap_us\": %.1f, "
           "\"release_us\": %.1f}\n",
           bytes / MIB, (at[1] - at[0]) * each, (at[2] - at[1]) * each, (at[3] - at[2]) * each, (at[4] - at[3]) * each,
           (at[5] - at[4]) * each);
}

static void parts(void)
{
    const size_t bytes = 64 * MIB, granule = 2 * MIB;
    NEED(cuMemCreate(&handles[0], bytes, &memory, 0));
    CUresult from_offset = cuMemMap(range, granule, granule, handles[0], 0);
    if (from_offset == CUDA_SUCCESS) {
        NEED(cuMemUnmap(range, granule));
    }
    NEED(cuMemMap(range, bytes, 0, handles[0], 0));
    CUresult of_part = cuMemUnmap(range + granule, granule);
    printf("{\"map_from_an_offset\": %d, \"unmap_a_part\": %d}\n", (int)from_offset, (int)of_part);
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    NEED(cuMemAddressReserve(&range, ALL, 0, 0, 0));
    memory = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                   .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    reader = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (size_t bytes = 2 * MIB; bytes <= 64 * MIB; bytes *= 2) {
        one_size(bytes);
    }
    parts();
    return 0;
}
