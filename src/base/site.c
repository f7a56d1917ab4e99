/* site.c - the address of a call as text. Threads and locks: see site.h. */
#include "base/site.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void hdi_site_text(const void *site, char out[HDI_SITE_BYTES])
{
    Dl_info info;
    uintptr_t at = (uintptr_t)site;
    memset(out, 0, HDI_SITE_BYTES);
    /* The address is where the call returns to, which may be in the next function. */
    if (at == 0) {
        snprintf(out, HDI_SITE_BYTES, "unknown");
    } else if (!dladdr((const void *)(at - 1), &info) || !info.dli_fname) {
        snprintf(out, HDI_SITE_BYTES, "0x%" PRIxPTR, at);
    } else if (info.dli_sname) {
        snprintf(out, HDI_SITE_BYTES, "%.100s+0x%" PRIxPTR, info.dli_sname, at - (uintptr_t)info.dli_saddr);
    } else {
        const char *name = info.dli_fname[0] ? file_name(info.dli_fname) : "program";
        snprintf(out, HDI_SITE_BYTES, "%.100s+0x%" PRIxPTR, name, at - (uintptr_t)info.dli_fbase);
    }
}
