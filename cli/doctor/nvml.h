/* nvml.h - the NVML calls of `heddle doctor`, and the facts from them.
 *
 * The declarations follow NVIDIA's public reference of NVML; tests/doctor/nvml_check.c compares
 * them with NVIDIA's header. The tool is not linked with NVML: it opens the library at run time. A
 * missing function affects only its own facts.
 * Threads: one at a time. Locks: those of NVML.
 * Blocking: calls of NVML may wait without a limit; see isolate.c.
 */
#ifndef CLI_DOCTOR_NVML_H
#define CLI_DOCTOR_NVML_H

#include "cli/doctor/collect.h"

typedef struct nvml_device_ *nvml_device;

enum {
    NVML_OK = 0,
    NVML_INVALID_ARGUMENT = 2,
    NVML_UNSUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_FUNCTION_MISSING = 13,
    NVML_GPU_LOST = 15,
    NVML_RESET_REQUIRED = 16,
    NVML_VERSION_MISMATCH = 18,
    NVML_GPU_NOT_FOUND = 28,
    NVML_TEXT = 96,
    NVML_LINKS_MAX = 36
};

/* Arguments of the queries. */
enum {
    NVML_ASK_VOLATILE = 0, /* counts since the driver was loaded */
    NVML_ASK_UNCORRECTED = 1,
    NVML_ASK_SM = 1,
    NVML_ASK_MEMORY = 2,
    NVML_ASK_CORE = 0,
    NVML_ASK_READ = 0,
    NVML_ASK_WRITE = 1,
    NVML_ASK_ATOMICS = 3
};

/* Bits of the reasons for lower clocks. */
enum {
    NVML_SLOW_IDLE = 0x1, /* no work */
    NVML_SLOW_SETTING = 0x2,
    NVML_SLOW_POWER_CAP = 0x4,
    NVML_SLOW_HARDWARE = 0x8,
    NVML_SLOW_THERMAL = 0x20,
    NVML_SLOW_HARDWARE_THERMAL = 0x40,
    NVML_SLOW_POWER_BRAKE = 0x80
};

/* States of a device in a fabric. */
enum { NVML_FABRIC_NONE = 0, NVML_FABRIC_NOT_STARTED = 1, NVML_FABRIC_IN_PROGRESS = 2, NVML_FABRIC_COMPLETED = 3 };

typedef struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvml_pci;

typedef struct nvml_amounts { /* for memory and for BAR1, whose structures begin with the total */
    unsigned long long total, second, third;
} nvml_amounts;

typedef struct nvml_utilization {
    unsigned gpu, memory;
} nvml_utilization;

typedef struct nvml_fabric {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
} nvml_fabric;

typedef struct nvml_confidential {
    unsigned version, environment, feature, tools, multi_gpu;
} nvml_confidential;

#define NVML_CONFIDENTIAL_VERSION ((unsigned)sizeof(nvml_confidential) | 1u << 24)

/* X(name, parameters). The library may lack any of these functions except the first five. */
#define NVML_ENTRIES(X)                                                                                                \
    X(nvmlInit_v2, (void))                                                                                             \
    X(nvmlShutdown, (void))                                                                                            \
    X(nvmlDeviceGetCount_v2, (unsigned *))                                                                             \
    X(nvmlDeviceGetHandleByIndex_v2, (unsigned, nvml_device *))                                                        \
    X(nvmlDeviceGetPciInfo_v3, (nvml_device, nvml_pci *))                                                              \
    X(nvmlSystemGetDriverVersion, (char *, unsigned))                                                                  \
    X(nvmlSystemGetNVMLVersion, (char *, unsigned))                                                                    \
    X(nvmlSystemGetConfComputeSettings, (nvml_confidential *))                                                         \
    X(nvmlDeviceGetName, (nvml_device, char *, unsigned))                                                              \
    X(nvmlDeviceGetMemoryInfo, (nvml_device, nvml_amounts *))                                                          \
    X(nvmlDeviceGetBAR1MemoryInfo, (nvml_device, nvml_amounts *))                                                      \
    X(nvmlDeviceGetUtilizationRates, (nvml_device, nvml_utilization *))                                                \
    X(nvmlDeviceGetPersistenceMode, (nvml_device, int *))                                                              \
    X(nvmlDeviceGetComputeMode, (nvml_device, int *))                                                                  \
    X(nvmlDeviceGetDisplayActive, (nvml_device, int *))                                                                \
    X(nvmlDeviceGetMigMode, (nvml_device, unsigned *, unsigned *))                                                     \
    X(nvmlDeviceGetVirtualizationMode, (nvml_device, int *))                                                           \
    X(nvmlDeviceGetTemperature, (nvml_device, int, unsigned *))                                                        \
    X(nvmlDeviceGetCurrentClocksThrottleReasons, (nvml_device, unsigned long long *))                                  \
    X(nvmlDeviceGetPowerManagementLimit, (nvml_device, unsigned *))                                                    \
    X(nvmlDeviceGetPowerManagementDefaultLimit, (nvml_device, unsigned *))                                             \
    X(nvmlDeviceGetClockInfo, (nvml_device, int, unsigned *))                                                          \
    X(nvmlDeviceGetMaxClockInfo, (nvml_device, int, unsigned *))                                                       \
    X(nvmlDeviceGetPerformanceState, (nvml_device, int *))                                                             \
    X(nvmlDeviceGetApplicationsClock, (nvml_device, int, unsigned *))                                                  \
    X(nvmlDeviceGetDefaultApplicationsClock, (nvml_device, int, unsigned *))                                           \
    X(nvmlDeviceGetTotalEccErrors, (nvml_device, int, int, unsigned long long *))                                      \
    X(nvmlDeviceGetRetiredPagesPendingStatus, (nvml_device, int *))                                                    \
    X(nvmlDeviceGetRemappedRows, (nvml_device, unsigned *, unsigned *, unsigned *, unsigned *))                        \
    X(nvmlDeviceGetComputeRunningProcesses_v3, (nvml_device, unsigned *, void *))                                      \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3, (nvml_device, unsigned *, void *))                                     \
    X(nvmlDeviceGetGpuFabricInfo, (nvml_device, nvml_fabric *))                                                        \
    X(nvmlDeviceGetNvLinkState, (nvml_device, unsigned, int *))                                                        \
    X(nvmlDeviceGetNvLinkRemotePciInfo_v2, (nvml_device, unsigned, nvml_pci *))                                        \
    X(nvmlDeviceGetP2PStatus, (nvml_device, nvml_device, int, int *))

typedef struct nvml {
    void *library;
#define NVML_MEMBER(name, parameters) int(*name) parameters;
    NVML_ENTRIES(NVML_MEMBER)
#undef NVML_MEMBER
} nvml;

/* Opens libnvidia-ml.so.1. False: `reason` explains the failure, in NVML_TEXT bytes. */
bool doctor_nvml_open(nvml *out, char *reason);

/* Reads all facts from NVML. Adds devices that are not in *buses. */
void doctor_nvml_read(const nvml *n, doctor_buses *buses, doctor_snapshot *s);

#endif
