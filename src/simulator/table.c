/* table.c - the host provider's table of entry points.
 *
 * Any thread, no locks; the table is constant.
 */
#include "simulator/host.h"

const hdi_provider hdi_provider_host = {
    .name = "host",
    .is_host = true,
    .code = HDI_CODE_CPU,
    .chains_eager = true,                        /* on the CPU chains cost and save nothing */
    .peer_test_bytes = ((uint64_t)2 << 20) + 64, /* more makes no difference to a processor's copies */
    .peer_slow_margin =
        8.0, /* one thread copies: what else the processor has to do slows it down more than two that take turns */
    .blas = HDI_BLAS_HOST,
    .open = hdi_driver_host,
};

hd_status hdi_driver_host(const hdi_driver **out)
{
    static const hdi_driver table = {.provider = &hdi_provider_host,
                                     .version = 13000,
#define TABLE_ENTRY(name, version, need, parameters, arguments) .name = hdi_host_##name,
                                     HDI_DRIVER_ENTRIES(TABLE_ENTRY)
#undef TABLE_ENTRY
    };
    *out = &table;
    return HD_OK;
}
