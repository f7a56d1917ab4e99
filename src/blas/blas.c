/* blas.c - opens the library that makes a provider's matrix products, as the option blas names it.
 *
 * With blas=auto this file tries the names of libraries in order. It collects the reasons why
 * libraries were not used.
 * Threads: any. Locks: none. Blocking: a call that opens a library waits, as blas.h describes.
 * Always: all signals are blocked while a library is opened. Threads that the library starts
 * inherit the blocked signals, so they take no signals of the program.
 */
#include "base/descriptor.h"
#include "blas/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "driver/driver.h"

void hdi_blas_say(char *why, const char *format, ...)
{
    size_t room = sizeof((hdi_blas_facts *)0)->why, used = strlen(why);
    if (used > 0 && used + 2 < room) {
        memcpy(why + used, "; ", 3);
        used += 2;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why + used, room - used, format, arguments);
    va_end(arguments);
}

/* Adds the first line of the loader's message. If the message begins with the library's name,
 * leaves the name out, since the line already contains it. */
static void blas_say_why_not(char *why, const char *name, const char *text)
{
    char line[192];
    size_t length = strlen(name);
    if (text != NULL && strncmp(text, name, length) == 0 && text[length] == ':') {
        text += length + 1;
        text += strspn(text, " ");
    }
    snprintf(line, sizeof line, "%s", text != NULL ? text : "cannot be opened");
    line[strcspn(line, "\n")] = '\0';
    hdi_blas_say(why, "%s: %s", name, line);
}

void *hdi_blas_load(const char *name, char *why)
{
    /* RTLD_LAZY: to bind tens of thousands of functions takes long, and some of them need other
     * libraries that are not installed. */
    void *library = hdi_descriptor_library(name, RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL) {
        blas_say_why_not(why, name, dlerror());
    }
    return library;
}

bool hdi_blas_entry(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

hdcu_result hdi_blas_fault(const hdi_driver *driver, int which)
{
    return hdi_faults_library(driver, which == HDI_BLAS_OPEN ? HDI_FAULT_BLAS_OPEN : HDI_FAULT_BLAS_PRODUCT);
}

/* The libraries of each kind; NULL: the kind has none. */
static const hdi_blas_source *const sources[HDI_BLAS_KINDS] = {
    [HDI_BLAS_CUBLAS] = &hdi_blas_cublas,
    [HDI_BLAS_HOST] = &hdi_blas_host,
};

uint64_t hdi_blas_workspace(const hdi_provider *provider, int compute_major)
{
    const hdi_blas_source *source = sources[provider->blas];
    return source && source->workspace ? source->workspace(compute_major) : 0;
}

static hdcu_result blas_open_some(const hdi_blas_config *config, hdi_blas **out, char *why, const char **call)
{
    const hdi_blas_source *source = sources[config->driver->provider->blas];
    if (source == NULL) {
        hdi_blas_say(why, "driver=%s has no library for matrix products", config->driver->provider->name);
        return HDCU_SUCCESS;
    }
    if (config->library[0] == '\0') { /* for "", the loader would open the program itself */
        hdi_blas_say(why, "no library is named");
        return HDCU_SUCCESS;
    }
    if (strcmp(config->library, "auto") != 0) {
        return source->open(config, config->library, out, why, call);
    }
    hdcu_result r = HDCU_SUCCESS;
    for (const char *const *name = source->names; *name != NULL && r == HDCU_SUCCESS && *out == NULL; name++) {
        r = source->open(config, *name, out, why, call);
    }
    return r;
}

hdcu_result hdi_blas_open(const hdi_blas_config *config, hdi_blas **out, hdi_blas_facts *facts, const char **call)
{
    hdi_blas_facts told;
    memset(&told, 0, sizeof told);
    hdi_blas *blas = NULL;
    *call = "blasOpen";
    hdcu_result r = hdi_blas_fault(config->driver, HDI_BLAS_OPEN);
    if (r != HDCU_SUCCESS) {
        return r;
    }
    if (strcmp(config->library, "builtin") == 0) {
        hdi_blas_say(told.why, "option blas=builtin");
    } else {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = blas_open_some(config, &blas, told.why, call);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (r == HDCU_SUCCESS) {
        if (blas != NULL) {
            /* Appends the reason to the reasons why earlier libraries were not used. */
            char *why = blas->facts.why;
            if (why[0] != '\0') {
                hdi_blas_say(told.why, "%s", why);
            }
            memcpy(why, told.why, sizeof told.why);
            told = blas->facts;
        } else {
            snprintf(told.name, sizeof told.name, "built-in");
        }
        *facts = told;
        *out = blas;
    }
    return r;
}

void hdi_blas_close(hdi_blas *blas, bool driver_usable)
{
    if (blas != NULL) {
        blas->calls->close(blas, driver_usable);
    }
}
