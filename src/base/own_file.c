/* own_file.c - which file the library's own code lies in. See own_file.h for threads, locks and what always holds. */
#include "base/own_file.h"

#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct search {
    uintptr_t address;
    const char *name;    /* of the object with that address; NULL: not found yet */
    const char *runpath; /* NULL: it has none */
} search;

/* The dynamic section of a program or shared object as it is in memory. Most loaders have turned addresses in it into those of here. */
static const char *runpath_of(const struct dl_phdr_info *object, const ElfW(Phdr) * p)
{
    const ElfW(Dyn) *d = (const ElfW(Dyn) *)(object->dlpi_addr + p->p_vaddr);
    uintptr_t strings = 0, offset = 0;
    bool found = false;
    for (; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_STRTAB) {
            strings = d->d_un.d_ptr < object->dlpi_addr ? object->dlpi_addr + d->d_un.d_ptr : d->d_un.d_ptr;
        } else if (d->d_tag == DT_RUNPATH || (d->d_tag == DT_RPATH && !found)) {
            offset = d->d_un.d_val;
            found = true;
        }
    }
    return found && strings != 0 ? (const char *)(strings + offset) : NULL;
}

static int look(struct dl_phdr_info *object, size_t bytes, void *context)
{
    search *s = context;
    (void)bytes;
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &object->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && s->address - (object->dlpi_addr + p->p_vaddr) < p->p_memsz) {
            s->name = object->dlpi_name != NULL ? object->dlpi_name : "";
        }
    }
    for (unsigned i = 0; s->name != NULL && i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            s->runpath = runpath_of(object, &object->dlpi_phdr[i]);
        }
    }
    return s->name != NULL;
}

static search self;

static void look_for_it(void)
{
    self.address = (uintptr_t)look_for_it;
    dl_iterate_phdr(look, &self);
}

/* Once: the library stays where it is. And a child of fork() must not ask the loader, whose lock a thread of its parent may have had. */
static const search *look_for_self(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look_for_it);
    return &self;
}

const char *hdi_own_file_name(void)
{
    const search *s = look_for_self();
    return s->name != NULL && s->name[0] != '\0' ? s->name : NULL; /* the program has an empty name */
}

bool hdi_own_file_runpath(char *out, size_t bytes)
{
    const search *s = look_for_self();
    int n = snprintf(out, bytes, "%s", s->runpath != NULL ? s->runpath : "");
    return n >= 0 && (size_t)n < bytes;
}

/* The file that is mapped at an address, as the kernel names it. */
static bool mapped_file(uintptr_t address, char *out, size_t bytes)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[PATH_MAX + 128];
    bool found = false;
    while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL) {
        unsigned long from, to;
        int path = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &from, &to, &path) == 2 && path > 0 && address >= from &&
            address < to) {
            line[strcspn(line, "\n")] = '\0';
            int n = snprintf(out, bytes, "%s", line + path);
            found = line[path] == '/' && n > 0 && (size_t)n < bytes;
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return found;
}

bool hdi_own_file_path(char *out, size_t bytes)
{
    const char *object = hdi_own_file_name();
    if (object == NULL) {
        ssize_t n = readlink("/proc/self/exe", out, bytes);
        if (n <= 0 || (size_t)n >= bytes) {
            return false;
        }
        out[n] = '\0';
        return out[0] == '/';
    }
    char name[PATH_MAX], path[PATH_MAX];
    if (object[0] != '/') { /* what it is relative to may be another folder now */
        if (!mapped_file((uintptr_t)hdi_own_file_path, name, sizeof name)) {
            return false;
        }
        object = name;
    }
    if (realpath(object, path) == NULL || strlen(path) >= bytes) {
        return false;
    }
    snprintf(out, bytes, "%s", path);
    return true;
}
