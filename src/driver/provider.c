/* provider.c - the providers by name.
 *
 * Threads: any. Locks: none. Blocking: nothing. Always: no other file of the library compares a provider's name (tools/check-layers).
 */
#include "driver/provider.h"

#include <stddef.h>
#include <string.h>

static const hdi_provider *const all[] = {&hdi_provider_nvidia, &hdi_provider_host};

const hdi_provider *hdi_provider_named(const char *name)
{
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(all[i]->name, name) == 0) {
            return all[i];
        }
    }
    return NULL;
}
