/* toolkit.c - opens libraries of the CUDA toolkit (toolkit.h). Threads, locks and blocking: see
 * there.
 *
 * Always: all signals are blocked while a library is opened, so that threads of the library take no
 * signals of the program.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/descriptor.h"
#include "blas/blas.h"
#include "kernel/toolkit.h"

void hdi_made_code_release(hdi_made_code *made)
{
    for (size_t i = 0; i < made->n_aliases; i++) {
        free(made->aliases[i].name);
        free(made->aliases[i].symbol);
    }
    free(made->aliases);
    free(made->bytes);
    memset(made, 0, sizeof *made);
}

/* Searches the loader's places, then the usual folder of the toolkit. */
static void *toolkit_open_one(const char *name, char *why)
{
    void *library = hdi_blas_load(name, why);
    if (!library && !strchr(name, '/')) {
        char path[256];
        snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s", name);
        library = hdi_descriptor_library(path, RTLD_LAZY | RTLD_LOCAL);
    }
    return library;
}

void *hdi_toolkit_open(const char *option, const char *const *names, char *why)
{
    void *library = NULL;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (strcmp(option, "auto") == 0) {
        for (size_t i = 0; names[i] && !library; i++) {
            library = toolkit_open_one(names[i], why);
        }
    } else if (option[0]) { /* for "", the loader would open the program itself */
        library = hdi_blas_load(option, why);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return library;
}
