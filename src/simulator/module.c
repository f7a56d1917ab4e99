/* module.c - modules: shared objects with CPU kernels, and the functions and variables in them.
 *
 * Threads: any. Locks: the host lock; objects are loaded and unloaded without it. Blocking: a load
 * writes the image to a memory file and calls the dynamic loader.
 * Always: a module's code stays loaded until its handle is gone and no queued or recorded launch
 * refers to it. The module's descriptor stays open until then: the dynamic loader identifies an
 * object by its name, which contains the descriptor's number.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <heddle/kernel.h>
#include "base/descriptor.h"
#include "base/file.h"
#include "base/shortage.h"
#include "simulator/cpu_run.h"
#include "simulator/host.h"

#define IMAGE_BYTES_MAX ((uint64_t)1 << 30)
#define SEGMENTS 8 /* the most mappings that an object takes, and some more */

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_NONE
#endif

enum { MACHINE_CUDA = 190 };

static void host_module_release_functions(hdi_host_module *m)
{
    for (unsigned i = 0; i < m->function_count; i++) {
        hdi_host_handle_drop(m->functions[i].handle);
        m->functions[i].handle = 0;
    }
}

void hdi_host_module_release(hdi_host_module *module)
{
    if (--module->references == 0) {
        free(module->functions);
        hdi_host_discard(&module->garbage);
    }
}

static void host_module_release_variables(hdi_host_module *m)
{
    while (m->variables) {
        hdi_host_variable *v = m->variables;
        m->variables = v->next;
        hdi_host_set_remove(&hdi_host_mappings, &v->mapping.span);
        free(v);
    }
}

static void host_module_unload(hdi_host_module *m)
{
    hdi_host_handle_drop(m->handle);
    host_module_release_variables(m);
    host_module_release_functions(m);
    hdi_host_module_release(m);
}

void hdi_host_modules_release(hdi_host_context *context)
{
    uint32_t position = 0;
    hdi_host_module *m;
    while ((m = hdi_host_handle_next(HDI_HOST_MODULE, &position))) {
        if (m->context == context) {
            host_module_unload(m);
        }
    }
}

/* ---- images ---- */

/* The logs that the options of cuModuleLoadDataEx ask for. */
typedef struct jit_log {
    char *error;
    size_t error_bytes;
    void **error_size, **info_size;
} jit_log;

static jit_log jit_log_of(unsigned count, const int *options, void **values)
{
    jit_log log = {0};
    for (unsigned i = 0; options && values && i < count; i++) {
        switch (options[i]) {
        case HDCU_JIT_ERROR_LOG_BUFFER:
            log.error = values[i];
            break;
        case HDCU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            log.error_bytes = (size_t)(uint32_t)(uintptr_t)values[i];
            log.error_size = &values[i];
            break;
        case HDCU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            log.info_size = &values[i];
            break;
        default:
            break;
        }
    }
    return log;
}

/* Writes the text. As in NVIDIA's driver, the numbers of bytes that were written replace the sizes
 * in the options. */
static void jit_log_write(const jit_log *log, const char *text)
{
    size_t written = 0;
    if (log->error && log->error_bytes > 0) {
        snprintf(log->error, log->error_bytes, "%s", text);
        written = strlen(log->error);
    }
    if (log->error_size) {
        *log->error_size = (void *)(uintptr_t)written;
    }
    if (log->info_size) {
        *log->info_size = NULL;
    }
}

static bool host_image_is_fatbin(const unsigned char *b)
{
    static const unsigned char fatbin[4] = {0x50, 0xed, 0x55, 0xba}, wrapper[4] = {0xb1, 0x43, 0x62, 0x46};
    for (int which = 0; which < 2; which++) {
        const unsigned char *magic = which ? wrapper : fatbin;
        int same = 0;
        /* The loop stops at the first difference, since a shorter image may end there. */
        while (same < 4 && b[same] == magic[same]) {
            same++;
        }
        if (same == 4) {
            return true;
        }
    }
    return false;
}

static bool host_image_is_ptx(const char *text)
{
    for (size_t i = 0; text[i] != 0; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x80 || (c < ' ' && c != '\t' && c != '\n' && c != '\r')) {
            return false;
        }
        if (c == '.' && strncmp(text + i, ".version", 8) == 0) {
            return true;
        }
    }
    return false;
}

static bool host_image_is_elf(const unsigned char *b)
{
    return b[0] == ELFMAG0 && b[1] == ELFMAG1 && b[2] == ELFMAG2 && b[3] == ELFMAG3;
}

/* Finds the size of the image, which must be a shared object for this machine. *why is the reason
 * of a failure.
 * Errors: NO_BINARY_FOR_GPU (it is code for GPUs), INVALID_IMAGE. */
static hdcu_result host_image_bytes(const void *image, size_t *bytes, const char **why)
{
    Elf64_Ehdr header;
    if (!host_image_is_elf(image)) {
        bool for_gpu = host_image_is_fatbin(image) || host_image_is_ptx(image);
        *why =
            for_gpu
                ? "the image is PTX or GPU code; a host device needs the CPU section of a kernel file (a shared object)"
                : "the image is not a shared object";
        return for_gpu ? HDCU_ERROR_NO_BINARY_FOR_GPU : HDCU_ERROR_INVALID_IMAGE;
    }
    memcpy(&header, image, sizeof header);
    if (header.e_machine == MACHINE_CUDA) {
        *why = "the image is GPU code (a cubin); a host device needs the CPU section of a kernel file";
        return HDCU_ERROR_NO_BINARY_FOR_GPU;
    }
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN || header.e_machine != MACHINE ||
        header.e_shoff == 0 || header.e_shoff > IMAGE_BYTES_MAX) {
        *why = "the image is not a shared object for this processor";
        return HDCU_ERROR_INVALID_IMAGE;
    }
    *bytes = header.e_shoff + (size_t)header.e_shnum * header.e_shentsize;
    return HDCU_SUCCESS;
}

static bool host_module_table_is_good(const hd_cpu_module *table)
{
    if (table->magic != HD_CPU_MODULE_MAGIC || table->version == 0 || table->version > HD_CPU_MODULE_VERSION ||
        !table->kernels) {
        return false;
    }
    for (const hd_cpu_kernel *const *k = table->kernels; k < table->kernels_end; k++) {
        if ((*k)->magic != HD_CPU_KERNEL_MAGIC || !(*k)->entry || (*k)->argument_bytes > 4096) {
            return false;
        }
    }
    return true;
}

/* Finds the thread-local storage of the loaded object. If the object permits it, workers keep the
 * storage; otherwise the system keeps it. */
static void host_module_find_storage(const char *image, void *library, const hd_cpu_module *table, hdi_cpu_storage *out)
{
    struct link_map *object;
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    for (unsigned i = 0; dlinfo(library, RTLD_DI_LINKMAP, &object) == 0 && i < header.e_phnum; i++) {
        Elf64_Phdr p;
        memcpy(&p, image + header.e_phoff + i * sizeof p, sizeof p);
        if (p.p_type == PT_TLS) {
            *out = (hdi_cpu_storage){.bytes = p.p_memsz,
                                     .align = p.p_align > 0 ? p.p_align : 1,
                                     .image = (const void *)(object->l_addr + p.p_vaddr),
                                     .image_bytes = p.p_filesz,
                                     .by_system = library};
        }
    }
    if (table->version >= 2 && table->shared) {
        *table->shared = hdi_cpu_shared;
        out->by_system = NULL;
    }
}

/* True if the process can open and map an object of that size. The dynamic loader would report a
 * lack of room only as a text, which may be translated. */
static bool host_module_has_room(int descriptor, size_t bytes)
{
    void *maps[SEGMENTS];
    int spare = hdi_descriptor_copy(descriptor, 0), n = 0;
    while (n < SEGMENTS && (maps[n] = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0)) != MAP_FAILED) {
        n++;
    }
    for (int i = 0; i < n; i++) {
        munmap(maps[i], bytes);
    }
    if (spare >= 0) {
        close(spare);
    }
    return spare >= 0 && n == SEGMENTS;
}

/* Loads the object into `m->garbage` and makes its list of functions, without handles. Runs without
 * the lock. *why is the reason of a failure. */
static hdcu_result host_module_load(const void *image, hdi_host_module *m, const char **why)
{
    size_t bytes = 0;
    hdcu_result r = host_image_bytes(image, &bytes, why);
    if (r != HDCU_SUCCESS) {
        return r;
    }
    char path[64];
    m->garbage.descriptor = hdi_descriptor_memory("heddle-host-module", 0);
    if (m->garbage.descriptor < 0 || !hdi_write_quietly(m->garbage.descriptor, image, bytes, INT64_MAX)) {
        *why = errno == EFBIG    ? "the image is larger than files may be (ulimit -f)"
               : errno == EMFILE ? "the process has no descriptors left (ulimit -n)"
                                 : "no memory for the image";
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    /* The path contains the number of this process, since a debugger also opens the path, and
     * "self" would then mean the debugger. */
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getpid(), m->garbage.descriptor);
    m->garbage.library = hdi_descriptor_library(path, RTLD_NOW | RTLD_LOCAL);
    if (!m->garbage.library) {
        const char *text = dlerror();
        const char *shortage = hdi_shortage_text();
        *why = shortage ? shortage : text ? text : "dlopen failed";
        return host_module_has_room(m->garbage.descriptor, bytes) ? HDCU_ERROR_INVALID_IMAGE : HDCU_ERROR_OUT_OF_MEMORY;
    }
    const hd_cpu_module *table = dlsym(m->garbage.library, "hd_cpu_module");
    if (table && table->magic == HD_CPU_MODULE_MAGIC && table->version > HD_CPU_MODULE_VERSION) {
        *why = "the kernel file was made by a newer version of Heddle; compile it with the `heddle cc` of this version";
        return HDCU_ERROR_INVALID_IMAGE;
    }
    if (!table || !host_module_table_is_good(table)) {
        *why = "the shared object has no table of kernels (hd_cpu_module) of this version";
        return HDCU_ERROR_INVALID_IMAGE;
    }
    host_module_find_storage(image, m->garbage.library, table, &m->storage);
    size_t count = (size_t)(table->kernels_end - table->kernels);
    m->functions = calloc(count ? count : 1, sizeof *m->functions);
    if (!m->functions) {
        *why = "no memory for the functions";
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    m->function_count = (unsigned)count;
    for (size_t i = 0; i < count; i++) {
        m->functions[i].module = m;
        m->functions[i].kernel = table->kernels[i];
        m->functions[i].dynamic_shared_max = HDI_CPU_SHARED_BYTES_DEFAULT;
    }
    return HDCU_SUCCESS;
}

static hdcu_result host_module_give_handles(hdi_host_module *m)
{
    m->handle = hdi_host_handle_make(HDI_HOST_MODULE, m);
    bool good = m->handle != 0;
    for (unsigned i = 0; i < m->function_count && good; i++) {
        m->functions[i].handle = hdi_host_handle_make(HDI_HOST_FUNCTION, &m->functions[i]);
        good = m->functions[i].handle != 0;
    }
    return good ? HDCU_SUCCESS : HDCU_ERROR_OUT_OF_MEMORY;
}

static hdcu_result cuModuleLoadDataEx(hdcu_module *module, const void *image, unsigned count, int *options,
                                      void **values)
{
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS && (!module || !image || (count > 0 && (!options || !values)))) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r != HDCU_SUCCESS) {
        return hdi_host_leave(r);
    }
    uint64_t context_handle = context->handle;
    hdi_host_unlock();

    const char *why = "";
    hdi_host_module *m = calloc(1, sizeof *m);
    if (!m) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    m->references = 1;
    m->garbage = (hdi_host_garbage){.descriptor = -1, .self = m};
    r = host_module_load(image, m, &why);
    jit_log log = jit_log_of(count, options, values);
    jit_log_write(&log, why);

    hdi_host_lock();
    if (r == HDCU_SUCCESS) {
        m->context = hdi_host_handle_find(HDI_HOST_CONTEXT, context_handle);
        r = m->context ? host_module_give_handles(m) : HDCU_ERROR_CONTEXT_IS_DESTROYED;
    }
    if (r == HDCU_SUCCESS) {
        *module = (hdcu_module)(uintptr_t)m->handle;
    } else {
        host_module_unload(m);
    }
    return hdi_host_leave(r);
}

static hdcu_result cuModuleUnload(hdcu_module module)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids();
    }
    if (r == HDCU_SUCCESS) {
        hdi_host_module *m = hdi_host_handle_find(HDI_HOST_MODULE, (uintptr_t)module);
        if (m) {
            host_module_unload(m);
        } else {
            r = HDCU_ERROR_INVALID_HANDLE;
        }
    }
    return hdi_host_leave(r);
}

/* ---- functions ---- */

static hdcu_result host_module_enter(hdcu_module handle, const void *output, hdi_host_module **m)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        *m = hdi_host_handle_find(HDI_HOST_MODULE, (uintptr_t)handle);
        r = !*m ? HDCU_ERROR_INVALID_HANDLE : output ? (*m)->context->error : HDCU_ERROR_INVALID_VALUE;
    }
    return r;
}

static hdcu_result cuModuleGetFunction(hdcu_function *function, hdcu_module module, const char *name)
{
    hdi_host_module *m;
    hdcu_result r = host_module_enter(module, function, &m);
    if (r == HDCU_SUCCESS && !name) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = HDCU_ERROR_NOT_FOUND;
        for (unsigned i = 0; i < m->function_count; i++) {
            if (strcmp(m->functions[i].kernel->name, name) == 0) {
                *function = (hdcu_function)(uintptr_t)m->functions[i].handle;
                r = HDCU_SUCCESS;
                break;
            }
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result cuModuleGetFunctionCount(unsigned *count, hdcu_module module)
{
    hdi_host_module *m;
    hdcu_result r = host_module_enter(module, count, &m);
    if (r == HDCU_SUCCESS) {
        *count = m->function_count;
    }
    return hdi_host_leave(r);
}

static hdcu_result cuModuleEnumerateFunctions(hdcu_function *functions, unsigned count, hdcu_module module)
{
    hdi_host_module *m;
    hdcu_result r = host_module_enter(module, functions, &m);
    for (unsigned i = 0; r == HDCU_SUCCESS && i < count && i < m->function_count; i++) {
        functions[i] = (hdcu_function)(uintptr_t)m->functions[i].handle;
    }
    return hdi_host_leave(r);
}

static hdcu_result host_function_enter(hdcu_function handle, hdi_host_function **f)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        *f = hdi_host_handle_find(HDI_HOST_FUNCTION, (uintptr_t)handle);
        r = *f ? (*f)->module->context->error : HDCU_ERROR_INVALID_HANDLE;
    }
    return r;
}

static hdcu_result cuFuncGetName(const char **name, hdcu_function function)
{
    hdi_host_function *f;
    hdcu_result r = host_function_enter(function, &f);
    if (r == HDCU_SUCCESS && !name) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        *name = f->kernel->name;
    }
    return hdi_host_leave(r);
}

/* Does nothing, because all code of a module is loaded from the start. */
static hdcu_result cuFuncLoad(hdcu_function function)
{
    hdi_host_function *f;
    return hdi_host_leave(host_function_enter(function, &f));
}

static hdcu_result cuFuncGetAttribute(int *value, int attribute, hdcu_function function)
{
    hdi_host_function *f;
    hdcu_result r = host_function_enter(function, &f);
    if (r == HDCU_SUCCESS && !value) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        switch (attribute) {
        case HDCU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            *value = f->kernel->max_threads > 0 && f->kernel->max_threads < 1024 ? (int)f->kernel->max_threads : 1024;
            break;
        case HDCU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
            *value = 0; /* static shared memory is thread-local storage */
            break;
        case HDCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            *value = f->dynamic_shared_max;
            break;
        default:
            r = HDCU_ERROR_INVALID_VALUE;
            break;
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result cuFuncSetAttribute(hdcu_function function, int attribute, int value)
{
    hdi_host_function *f;
    hdcu_result r = host_function_enter(function, &f);
    if (r == HDCU_SUCCESS && (attribute != HDCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
                              value > HDI_CPU_SHARED_BYTES_MAX)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        f->dynamic_shared_max = value;
    }
    return hdi_host_leave(r);
}

static hdcu_result cuFuncGetParamInfo(hdcu_function function, size_t index, size_t *offset, size_t *size)
{
    hdi_host_function *f;
    hdcu_result r = host_function_enter(function, &f);
    if (r == HDCU_SUCCESS && (!offset || index >= f->kernel->n_params)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        *offset = f->kernel->params[index].offset;
        if (size) {
            *size = f->kernel->params[index].size;
        }
    }
    return hdi_host_leave(r);
}

/* ---- variables ---- */

/* Finds an exported variable of the object. Ignores variables of other objects that this object
 * needs. Runs without the lock. */
static hdcu_result host_module_find_variable(void *library, const char *name, uintptr_t *address, size_t *bytes)
{
    const struct link_map *object;
    const ElfW(Sym) *symbol = NULL;
    Dl_info info;
    const void *at = dlsym(library, name);
    if (!at || dlinfo(library, RTLD_DI_LINKMAP, &object) != 0 ||
        !dladdr1(at, &info, (void **)&symbol, RTLD_DL_SYMENT) || (uintptr_t)info.dli_fbase != object->l_addr ||
        !symbol || !info.dli_sname || strcmp(info.dli_sname, name) != 0 || symbol->st_size == 0 ||
        ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT) {
        return HDCU_ERROR_NOT_FOUND;
    }
    *address = (uintptr_t)at;
    *bytes = symbol->st_size;
    return HDCU_SUCCESS;
}

/* Makes the variable memory of the module's device. */
static hdcu_result host_module_know_variable(hdi_host_module *m, uintptr_t address, size_t bytes)
{
    if (hdi_host_set_find(&hdi_host_mappings, address)) {
        return HDCU_SUCCESS; /* the variable was requested before */
    }
    hdi_host_variable *v = calloc(1, sizeof *v);
    if (v) {
        v->mapping =
            (hdi_host_mapping){.span = {address, bytes}, .kind = HDI_HOST_VARIABLE, .device = m->context->device};
    }
    if (!v || !hdi_host_set_insert(&hdi_host_mappings, &v->mapping.span)) {
        free(v);
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    v->next = m->variables;
    m->variables = v;
    return HDCU_SUCCESS;
}

static hdcu_result cuModuleGetGlobal(hdcu_deviceptr *pointer, size_t *bytes, hdcu_module handle, const char *name)
{
    hdi_host_module *m;
    hdcu_result r = host_module_enter(handle, name, &m);
    if (r != HDCU_SUCCESS) {
        return hdi_host_leave(r);
    }
    m->references++; /* so that the object stays loaded while the lock is released */
    hdi_host_unlock();
    uintptr_t address = 0;
    size_t size = 0;
    r = host_module_find_variable(m->garbage.library, name, &address, &size);
    hdi_host_lock();
    if (r == HDCU_SUCCESS && hdi_host_handle_find(HDI_HOST_MODULE, (uintptr_t)handle) != m) {
        r = HDCU_ERROR_INVALID_HANDLE; /* the module was unloaded while the lock was released */
    }
    if (r == HDCU_SUCCESS) {
        r = host_module_know_variable(m, address, size);
    }
    hdi_host_module_release(m);
    if (r == HDCU_SUCCESS && pointer) {
        *pointer = address;
    }
    if (r == HDCU_SUCCESS && bytes) {
        *bytes = size;
    }
    return hdi_host_leave(r);
}

/* ---- the entry points ---- */

const hdi_driver hdi_host_module_entries = {
    .cuModuleLoadDataEx = cuModuleLoadDataEx,
    .cuModuleUnload = cuModuleUnload,
    .cuModuleGetFunction = cuModuleGetFunction,
    .cuModuleGetGlobal = cuModuleGetGlobal,
    .cuModuleGetFunctionCount = cuModuleGetFunctionCount,
    .cuModuleEnumerateFunctions = cuModuleEnumerateFunctions,
    .cuFuncLoad = cuFuncLoad,
    .cuFuncGetName = cuFuncGetName,
    .cuFuncGetAttribute = cuFuncGetAttribute,
    .cuFuncSetAttribute = cuFuncSetAttribute,
    .cuFuncGetParamInfo = cuFuncGetParamInfo,
};
