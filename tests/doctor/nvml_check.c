/* nvml_check.c - compares cli/doctor/nvml.h with NVIDIA's own nvml.h, at compile time. Compiles to
 * nothing without that file, or with one older than CUDA 12.
 *
 * It checks:
 *   - every number, the size of every structure, the offset and the size of every member
 *   - that each function opened by name is declared, and accepts our arguments, with pointers for
 *     our pointers
 */
#if defined(__has_include)
#if __has_include(<nvml.h>)
#define HAVE_NVML_H 1
#endif
#endif

#ifdef HAVE_NVML_H
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#endif

#if defined(NVML_API_VERSION) && NVML_API_VERSION >= 12 && defined(nvmlSystemConfComputeSettings_v1)

#include <stddef.h>
#include "cli/doctor/nvml.h"
#include "../support/same.h"

SAME(NVML_OK, NVML_SUCCESS);
SAME(NVML_INVALID_ARGUMENT, NVML_ERROR_INVALID_ARGUMENT);
SAME(NVML_UNSUPPORTED, NVML_ERROR_NOT_SUPPORTED);
SAME(NVML_NO_PERMISSION, NVML_ERROR_NO_PERMISSION);
SAME(NVML_INSUFFICIENT_SIZE, NVML_ERROR_INSUFFICIENT_SIZE);
SAME(NVML_DRIVER_NOT_LOADED, NVML_ERROR_DRIVER_NOT_LOADED);
SAME(NVML_FUNCTION_MISSING, NVML_ERROR_FUNCTION_NOT_FOUND);
SAME(NVML_GPU_LOST, NVML_ERROR_GPU_IS_LOST);
SAME(NVML_RESET_REQUIRED, NVML_ERROR_RESET_REQUIRED);
SAME(NVML_VERSION_MISMATCH, NVML_ERROR_LIB_RM_VERSION_MISMATCH);
SAME(NVML_GPU_NOT_FOUND, NVML_ERROR_GPU_NOT_FOUND);
_Static_assert(NVML_LINKS_MAX >= NVML_NVLINK_MAX_LINKS, "a device may have more links");

SAME(NVML_ASK_VOLATILE, NVML_VOLATILE_ECC);
SAME(NVML_ASK_UNCORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
SAME(NVML_ASK_SM, NVML_CLOCK_SM);
SAME(NVML_ASK_MEMORY, NVML_CLOCK_MEM);
SAME(NVML_ASK_CORE, NVML_TEMPERATURE_GPU);
SAME(NVML_ASK_READ, NVML_P2P_CAPS_INDEX_READ);
SAME(NVML_ASK_WRITE, NVML_P2P_CAPS_INDEX_WRITE);
SAME(NVML_ASK_ATOMICS, NVML_P2P_CAPS_INDEX_ATOMICS);

SAME(NVML_SLOW_IDLE, nvmlClocksThrottleReasonGpuIdle);
SAME(NVML_SLOW_SETTING, nvmlClocksThrottleReasonApplicationsClocksSetting);
SAME(NVML_SLOW_POWER_CAP, nvmlClocksThrottleReasonSwPowerCap);
SAME(NVML_SLOW_HARDWARE, nvmlClocksThrottleReasonHwSlowdown);
SAME(NVML_SLOW_THERMAL, nvmlClocksThrottleReasonSwThermalSlowdown);
SAME(NVML_SLOW_HARDWARE_THERMAL, nvmlClocksThrottleReasonHwThermalSlowdown);
SAME(NVML_SLOW_POWER_BRAKE, nvmlClocksThrottleReasonHwPowerBrakeSlowdown);

SAME(NVML_FABRIC_NONE, NVML_GPU_FABRIC_STATE_NOT_SUPPORTED);
SAME(NVML_FABRIC_NOT_STARTED, NVML_GPU_FABRIC_STATE_NOT_STARTED);
SAME(NVML_FABRIC_IN_PROGRESS, NVML_GPU_FABRIC_STATE_IN_PROGRESS);
SAME(NVML_FABRIC_COMPLETED, NVML_GPU_FABRIC_STATE_COMPLETED);

/* These numbers index tables of nvml.c. */
SAME(0, NVML_COMPUTEMODE_DEFAULT);
SAME(1, NVML_COMPUTEMODE_EXCLUSIVE_THREAD);
SAME(2, NVML_COMPUTEMODE_PROHIBITED);
SAME(3, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
SAME(0, NVML_GPU_VIRTUALIZATION_MODE_NONE);
SAME(1, NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH);
SAME(2, NVML_GPU_VIRTUALIZATION_MODE_VGPU);
SAME(3, NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU);
SAME(4, NVML_GPU_VIRTUALIZATION_MODE_HOST_VSGA);
SAME(0, NVML_P2P_STATUS_OK);
SAME(1, NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED);
SAME(2, NVML_P2P_STATUS_GPU_NOT_SUPPORTED);
SAME(3, NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED);
SAME(4, NVML_P2P_STATUS_DISABLED_BY_REGKEY);
SAME(5, NVML_P2P_STATUS_NOT_SUPPORTED);
SAME(6, NVML_P2P_STATUS_UNKNOWN);
SAME(0, NVML_CC_SYSTEM_FEATURE_DISABLED);
SAME(0, NVML_CC_SYSTEM_MULTIGPU_NONE);

SAME_SIZE(nvml_pci, nvmlPciInfo_t);
SAME_MEMBER(nvml_pci, bus_id_legacy, nvmlPciInfo_t, busIdLegacy);
SAME_MEMBER(nvml_pci, domain, nvmlPciInfo_t, domain);
SAME_MEMBER(nvml_pci, bus, nvmlPciInfo_t, bus);
SAME_MEMBER(nvml_pci, device, nvmlPciInfo_t, device);
SAME_MEMBER(nvml_pci, pci_device_id, nvmlPciInfo_t, pciDeviceId);
SAME_MEMBER(nvml_pci, pci_subsystem_id, nvmlPciInfo_t, pciSubSystemId);
SAME_MEMBER(nvml_pci, bus_id, nvmlPciInfo_t, busId);
SAME_SIZE(nvml_amounts, nvmlMemory_t);
SAME_SIZE(nvml_amounts, nvmlBAR1Memory_t);
SAME_MEMBER(nvml_amounts, total, nvmlMemory_t, total);
SAME_MEMBER(nvml_amounts, total, nvmlBAR1Memory_t, bar1Total);
SAME_SIZE(nvml_utilization, nvmlUtilization_t);
SAME_MEMBER(nvml_utilization, gpu, nvmlUtilization_t, gpu);
SAME_MEMBER(nvml_utilization, memory, nvmlUtilization_t, memory);
SAME_SIZE(nvml_fabric, nvmlGpuFabricInfo_t);
SAME_MEMBER(nvml_fabric, cluster, nvmlGpuFabricInfo_t, clusterUuid);
SAME_MEMBER(nvml_fabric, status, nvmlGpuFabricInfo_t, status);
SAME_MEMBER(nvml_fabric, clique, nvmlGpuFabricInfo_t, cliqueId);
SAME_MEMBER(nvml_fabric, state, nvmlGpuFabricInfo_t, state);
SAME_SIZE(nvml_confidential, nvmlSystemConfComputeSettings_v1_t);
SAME_MEMBER(nvml_confidential, version, nvmlSystemConfComputeSettings_v1_t, version);
SAME_MEMBER(nvml_confidential, environment, nvmlSystemConfComputeSettings_v1_t, environment);
SAME_MEMBER(nvml_confidential, feature, nvmlSystemConfComputeSettings_v1_t, ccFeature);
SAME_MEMBER(nvml_confidential, tools, nvmlSystemConfComputeSettings_v1_t, devToolsMode);
SAME_MEMBER(nvml_confidential, multi_gpu, nvmlSystemConfComputeSettings_v1_t, multiGpuMode);
SAME(NVML_CONFIDENTIAL_VERSION, nvmlSystemConfComputeSettings_v1);

/* Types that our declarations pass or point to as an int. */
_Static_assert(sizeof(nvmlReturn_t) == sizeof(int) && sizeof(nvmlEnableState_t) == sizeof(int) &&
                   sizeof(nvmlComputeMode_t) == sizeof(int) && sizeof(nvmlGpuVirtualizationMode_t) == sizeof(int) &&
                   sizeof(nvmlTemperatureSensors_t) == sizeof(int) && sizeof(nvmlClockType_t) == sizeof(int) &&
                   sizeof(nvmlMemoryErrorType_t) == sizeof(int) && sizeof(nvmlEccCounterType_t) == sizeof(int) &&
                   sizeof(nvmlPstates_t) == sizeof(int) && sizeof(nvmlGpuP2PCapsIndex_t) == sizeof(int) &&
                   sizeof(nvmlGpuP2PStatus_t) == sizeof(int),
               "an enumeration is no int");
_Static_assert(sizeof(nvmlDevice_t) == sizeof(nvml_device), "a handle has another size");

/* A call to NVIDIA's function and ours with the same arguments: `p` for pointers, `u` for numbers.
 * It never runs. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define CHECK_NONE(name)                                                                                               \
    static inline size_t check_##name(void *p, unsigned u)                                                             \
    {                                                                                                                  \
        (void)p, (void)u;                                                                                              \
        return sizeof(name()) + sizeof(((nvml *)p)->name());                                                           \
    }
#define CHECK(name, ...)                                                                                               \
    static inline size_t check_##name(void *p, unsigned u)                                                             \
    {                                                                                                                  \
        (void)p, (void)u;                                                                                              \
        return sizeof(name(__VA_ARGS__)) + sizeof(((nvml *)p)->name(__VA_ARGS__));                                     \
    }
CHECK_NONE(nvmlInit_v2)
CHECK_NONE(nvmlShutdown)
CHECK(nvmlDeviceGetCount_v2, p)
CHECK(nvmlDeviceGetHandleByIndex_v2, u, p)
CHECK(nvmlDeviceGetPciInfo_v3, p, p)
CHECK(nvmlSystemGetDriverVersion, p, u)
CHECK(nvmlSystemGetNVMLVersion, p, u)
CHECK(nvmlSystemGetConfComputeSettings, p)
CHECK(nvmlDeviceGetName, p, p, u)
CHECK(nvmlDeviceGetMemoryInfo, p, p)
CHECK(nvmlDeviceGetBAR1MemoryInfo, p, p)
CHECK(nvmlDeviceGetUtilizationRates, p, p)
CHECK(nvmlDeviceGetPersistenceMode, p, p)
CHECK(nvmlDeviceGetComputeMode, p, p)
CHECK(nvmlDeviceGetDisplayActive, p, p)
CHECK(nvmlDeviceGetMigMode, p, p, p)
CHECK(nvmlDeviceGetVirtualizationMode, p, p)
CHECK(nvmlDeviceGetTemperature, p, u, p)
CHECK(nvmlDeviceGetCurrentClocksThrottleReasons, p, p)
CHECK(nvmlDeviceGetPowerManagementLimit, p, p)
CHECK(nvmlDeviceGetPowerManagementDefaultLimit, p, p)
CHECK(nvmlDeviceGetClockInfo, p, u, p)
CHECK(nvmlDeviceGetMaxClockInfo, p, u, p)
CHECK(nvmlDeviceGetPerformanceState, p, p)
CHECK(nvmlDeviceGetApplicationsClock, p, u, p)
CHECK(nvmlDeviceGetDefaultApplicationsClock, p, u, p)
CHECK(nvmlDeviceGetTotalEccErrors, p, u, u, p)
CHECK(nvmlDeviceGetRetiredPagesPendingStatus, p, p)
CHECK(nvmlDeviceGetRemappedRows, p, p, p, p, p)
CHECK(nvmlDeviceGetComputeRunningProcesses_v3, p, p, p)
CHECK(nvmlDeviceGetGraphicsRunningProcesses_v3, p, p, p)
CHECK(nvmlDeviceGetGpuFabricInfo, p, p)
CHECK(nvmlDeviceGetNvLinkState, p, u, p)
CHECK(nvmlDeviceGetNvLinkRemotePciInfo_v2, p, u, p)
CHECK(nvmlDeviceGetP2PStatus, p, p, u, p)

/* A function without a line above does not compile here. */
#define CHECKED(name, parameters) check_##name,
extern size_t (*const hdi_check_nvml[])(void *, unsigned);
size_t (*const hdi_check_nvml[])(void *, unsigned) = {NVML_ENTRIES(CHECKED)};

#else
typedef int hdi_no_nvml; /* an empty file is not valid C */
#endif
