/* table.c - the host provider's table of entry points.
 *
 * Any thread, no locks; the table is constant.
 */
#include "driver/host/host.h"

hd_status hdi_driver_host(const hdi_driver **out)
{
    static const hdi_driver table = {.provider = "host",
                                     .version = 13000,
#define TABLE_ENTRY(name, version, need, parameters, arguments) .name = hdi_host_##name,
                                     HDI_DRIVER_ENTRIES(TABLE_ENTRY)
#undef TABLE_ENTRY
    };
    *out = &table;
    return HD_OK;
}
