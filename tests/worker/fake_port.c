/* fake_port.c - a local port for tests. See fake_port.h for threads. */
#include "fake_port.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "support/check.h"
#include "worker/message.h"
#include "worker/remote.h"
#include "process/wire.h"

const hdi_facts fake_facts = {
    .limits = {.threads_per_block = 1024,
               .block = {1024, 1023, 64},
               .grid = {INT32_MAX, 65535, 65534},
               .shared_default = 49152,
               .shared_max = 232448},
    .name = "Fake device",
    .bus_id = "fake:0",
    .uuid = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
    .compute_major = 9,
    .compute_minor = 1,
    .multiprocessors = 132,
    .virtual_memory = 1,
    .memory_bytes = (uint64_t)141 << 30,
    .granule = 2 << 20,
    .peers = 0x8000000000000006,
};

const hdi_global_place fake_global_place = {.address = 0xfedcba9876543210, .bytes = 0x123456789a};

const hdi_blas_facts fake_blas_facts = {
    .types = 0x7e00,
    .most = INT64_MAX,
    .most_count = INT32_MAX,
    .name = "fake 1.2",
    .why = "for a test",
};

void fake_kernel_facts(hdi_kernel_facts *out)
{
    memset(out, 0, sizeof *out);
    out->max_threads = 640;
    out->static_shared = 12288;
    out->n_params = HDI_FUNCTION_PARAMS_MAX;
    for (unsigned i = 0; i < HDI_FUNCTION_PARAMS_MAX; i++) {
        out->params[i].offset = (uint16_t)(i * 9);
        out->params[i].size = (uint16_t)(i + 1);
    }
}

/* Records a call, and waits inside while the fake is held. */
static hdi_answer enter(hdi_port *port, const fake_note *note)
{
    fake_port *f = (fake_port *)port;
    pthread_mutex_lock(&f->lock);
    f->note = *note;
    f->calls++;
    f->inside++;
    pthread_cond_broadcast(&f->changed);
    while (f->held) {
        pthread_cond_wait(&f->changed, &f->lock);
    }
    f->inside--;
    hdi_answer answer = f->answer;
    pthread_mutex_unlock(&f->lock);
    return answer;
}

static hdi_answer enter_plain(hdi_port *port, const char *call, uint64_t a, uint64_t b)
{
    fake_note note = {.call = call, .a = a, .b = b};
    return enter(port, &note);
}

static hdi_answer do_facts(hdi_port *port, hdi_facts *out)
{
    hdi_answer answer = enter_plain(port, "facts", 0, 0);
    if (hdi_answered(answer)) {
        *out = fake_facts;
    }
    return answer;
}

static hdi_answer do_memory_free(hdi_port *port, uint64_t *out)
{
    hdi_answer answer = enter_plain(port, "memory_free", 0, 0);
    if (hdi_answered(answer)) {
        *out = FAKE_FREE;
    }
    return answer;
}

static hdi_answer do_lane(hdi_port *port, uint32_t number, bool sticky_failure)
{
    return enter_plain(port, "lane", number, sticky_failure);
}

static hdi_answer do_reserve(hdi_port *port, uint64_t wanted, uint64_t bytes, uint64_t *out)
{
    hdi_answer answer = enter_plain(port, "reserve", wanted, bytes);
    if (hdi_answered(answer)) {
        *out = FAKE_RESERVED(wanted, bytes);
    }
    return answer;
}

static hdi_answer do_unreserve(hdi_port *port, uint64_t at, uint64_t bytes)
{
    return enter_plain(port, "unreserve", at, bytes);
}

static hdi_answer do_map(hdi_port *port, uint64_t at, uint64_t bytes)
{
    return enter_plain(port, "map", at, bytes);
}

static hdi_answer do_map_each(hdi_port *port, uint64_t at, uint64_t bytes, uint64_t each)
{
    return enter_plain(port, "map_each", at + each, bytes);
}

static hdi_answer do_move(hdi_port *port, uint64_t from, uint64_t to, uint64_t bytes)
{
    return enter_plain(port, "move", from + to, bytes);
}

static hdi_answer do_map_piece(hdi_port *port, uint64_t at, uint64_t bytes)
{
    return enter_plain(port, "map_piece", at, bytes);
}

static hdi_answer do_unmap(hdi_port *port, uint64_t at, uint64_t bytes)
{
    return enter_plain(port, "unmap", at, bytes);
}

static unsigned long inode(int descriptor)
{
    struct stat facts;
    return fstat(descriptor, &facts) == 0 ? (unsigned long)facts.st_ino : 0;
}

static hdi_answer do_export(hdi_port *port, uint64_t at, uint64_t bytes, int *descriptor)
{
    hdi_answer answer = enter_plain(port, "export", at, bytes);
    if (hdi_answered(answer)) {
        *descriptor = fcntl(((fake_port *)port)->memory, F_DUPFD_CLOEXEC, 0);
    }
    return answer;
}

static hdi_answer do_import(hdi_port *port, int descriptor, uint64_t at, uint64_t bytes)
{
    fake_note note = {.call = "import", .a = at, .b = bytes, .file = inode(descriptor)};
    return enter(port, &note);
}

/* True after a successful pin until its unpin; unpin reports it as the driver does. */
static _Atomic bool registered;

static hdi_answer do_pin(hdi_port *port, void *base, uint64_t bytes, int descriptor, uint64_t *address)
{
    fake_note note = {
        .call = "pin", .a = (uintptr_t)base, .b = bytes, .pinned = *(char *)base, .file = inode(descriptor)};
    hdi_answer answer = enter(port, &note);
    if (hdi_answered(answer)) {
        *address = FAKE_PINNED((uintptr_t)base);
        atomic_store(&registered, true);
    }
    return answer;
}

static hdi_answer do_unpin(hdi_port *port, void *base, uint64_t bytes)
{
    if (!atomic_load(&registered)) {
        return (hdi_answer){HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED, "cuMemHostUnregister"};
    }
    fake_note note = {.call = "unpin", .a = (uintptr_t)base, .b = bytes, .pinned = *(char *)base};
    hdi_answer answer = enter(port, &note);
    if (hdi_answered(answer)) {
        atomic_store(&registered, false);
    }
    return answer;
}

static hdi_answer do_load(hdi_port *port, const hdi_code *code, uint64_t *out, char *log)
{
    fake_note note = {.call = "load", .a = (uint64_t)code->descriptor, .b = code->offset, .code_size = code->size};
    const unsigned char *bytes = code->bytes;
    memcpy(note.code, bytes, code->size < sizeof note.code ? code->size : sizeof note.code);
    for (size_t i = 0; i < code->size; i++) {
        note.code_sum += bytes[i];
    }
    hdi_answer answer = enter(port, &note);
    strcpy(log, FAKE_LOG);
    if (hdi_answered(answer)) {
        *out = FAKE_MODULE(code->size);
    }
    return answer;
}

static hdi_answer do_unload(hdi_port *port, uint64_t module)
{
    return enter_plain(port, "unload", module, 0);
}

static hdi_answer do_kernel(hdi_port *port, uint64_t module, const char *name, uint32_t number, bool params,
                            hdi_kernel_facts *out)
{
    fake_note note = {.call = "kernel", .a = module, .b = number | (uint64_t)params << 32};
    snprintf(note.name, sizeof note.name, "%s", name);
    hdi_answer answer = enter(port, &note);
    if (hdi_answered(answer)) {
        fake_kernel_facts(out);
    }
    return answer;
}

static hdi_answer do_kernel_shared(hdi_port *port, uint32_t number, uint32_t bytes)
{
    return enter_plain(port, "kernel_shared", number, bytes);
}

static hdi_answer do_global(hdi_port *port, uint64_t module, const char *name, hdi_global_place *out)
{
    fake_note note = {.call = "global", .a = module};
    snprintf(note.name, sizeof note.name, "%s", name);
    hdi_answer answer = enter(port, &note);
    if (hdi_answered(answer)) {
        *out = fake_global_place;
    }
    return answer;
}

static hdi_answer do_blas(hdi_port *port, uint32_t number, uint64_t workspace, uint64_t bytes, hdi_blas_facts *out)
{
    hdi_answer answer = enter_plain(port, "blas", workspace + number, bytes);
    if (hdi_answered(answer)) {
        *out = fake_blas_facts;
    }
    return answer;
}

static hdi_answer do_activities(hdi_port *port, bool on, hdi_activities_facts *out)
{
    hdi_answer answer = enter_plain(port, "activities", on, 0);
    if (hdi_answered(answer)) {
        *out = (hdi_activities_facts){.works = on, .why = "because"};
    }
    return answer;
}

static const hdi_port_calls calls = {
    .facts = do_facts,
    .activities = do_activities,
    .memory_free = do_memory_free,
    .lane = do_lane,
    .reserve = do_reserve,
    .unreserve = do_unreserve,
    .map = do_map,
    .map_each = do_map_each,
    .move = do_move,
    .map_piece = do_map_piece,
    .unmap = do_unmap,
    .export = do_export,
    .import = do_import,
    .pin = do_pin,
    .unpin = do_unpin,
    .load = do_load,
    .unload = do_unload,
    .kernel = do_kernel,
    .kernel_shared = do_kernel_shared,
    .global = do_global,
    .blas = do_blas,
};

void fake_init(fake_port *f)
{
    memset(f, 0, sizeof *f);
    f->port.calls = &calls;
    f->answer.call = "cuDeviceGetCount";
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    f->memory = memfd_create("heddle-fake-memory", MFD_CLOEXEC);
    assert_true(f->memory >= 0);
}

void fake_release(fake_port *f)
{
    close(f->memory);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
}

void fake_hold(fake_port *f, bool held)
{
    pthread_mutex_lock(&f->lock);
    f->held = held;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

void fake_await_inside(fake_port *f, int count)
{
    pthread_mutex_lock(&f->lock);
    while (f->inside < count) {
        pthread_cond_wait(&f->changed, &f->lock);
    }
    pthread_mutex_unlock(&f->lock);
}

void fake_answer(fake_port *f, int code, const char *call)
{
    pthread_mutex_lock(&f->lock);
    f->answer = (hdi_answer){.code = code, .call = call};
    pthread_mutex_unlock(&f->lock);
}

int fake_calls(fake_port *f)
{
    pthread_mutex_lock(&f->lock);
    int count = f->calls;
    pthread_mutex_unlock(&f->lock);
    return count;
}

fake_note fake_last(fake_port *f)
{
    pthread_mutex_lock(&f->lock);
    fake_note note = f->note;
    pthread_mutex_unlock(&f->lock);
    return note;
}

/* ---- a worker ---- */

typedef struct serving {
    fake_worker *worker;
    int line;
} serving;

static void *serve_line(void *argument)
{
    serving s = *(serving *)argument;
    free(argument);
    s.worker->results[s.line] = hdi_serve(s.worker->ends[s.line], &s.worker->fake->port);
    close(s.worker->ends[s.line]);
    return NULL;
}

void fake_worker_start(fake_worker *w, fake_port *f)
{
    w->fake = f;
    for (int i = 0; i < 2; i++) {
        int ends[2];
        assert_ok(hdi_wire_pair(ends));
        w->application[i] = ends[0];
        w->ends[i] = ends[1];
    }
    for (int i = 0; i < 2; i++) {
        serving *s = malloc(sizeof *s);
        assert_non_null(s);
        *s = (serving){w, i};
        assert_int_equal(pthread_create(&w->threads[i], NULL, serve_line, s), 0);
    }
}

void fake_worker_join(fake_worker *w)
{
    for (int i = 0; i < 2; i++) {
        if (w->application[i] >= 0) {
            close(w->application[i]);
            w->application[i] = -1;
        }
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(w->threads[i], NULL);
    }
}

/* ---- requests ---- */

void fake_things_make(fake_things *t)
{
    assert_ok(hdi_shm_create("heddle-fake-file", 65536, &t->file));
    for (size_t i = 0; i < t->file.bytes; i++) {
        ((char *)t->file.base)[i] = (char)(i * 7);
    }
    /* The low end of a large gap, since new mappings go to the high end. */
    size_t gap = (size_t)1 << 30;
    t->base = mmap(NULL, gap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(t->base != MAP_FAILED);
    munmap(t->base, gap);
    t->page = (size_t)sysconf(_SC_PAGESIZE);
}

void fake_things_release(fake_things *t)
{
    hdi_shm_release(&t->file);
}

static const uint32_t kinds[FAKE_KINDS] = {
    [FAKE_FACTS_OF] = HDI_MESSAGE_FACTS,
    [FAKE_MEMORY_FREE] = HDI_MESSAGE_MEMORY_FREE,
    [FAKE_LANE] = HDI_MESSAGE_LANE,
    [FAKE_RESERVE] = HDI_MESSAGE_RESERVE,
    [FAKE_UNRESERVE] = HDI_MESSAGE_UNRESERVE,
    [FAKE_MAP] = HDI_MESSAGE_MAP,
    [FAKE_MAP_EACH] = HDI_MESSAGE_MAP_EACH,
    [FAKE_MOVE] = HDI_MESSAGE_MOVE,
    [FAKE_MAP_PIECE] = HDI_MESSAGE_MAP_PIECE,
    [FAKE_UNMAP] = HDI_MESSAGE_UNMAP,
    [FAKE_EXPORT] = HDI_MESSAGE_EXPORT,
    [FAKE_IMPORT] = HDI_MESSAGE_IMPORT,
    [FAKE_PIN] = HDI_MESSAGE_PIN,
    [FAKE_UNPIN] = HDI_MESSAGE_UNPIN,
    [FAKE_LOAD] = HDI_MESSAGE_LOAD,
    [FAKE_UNLOAD] = HDI_MESSAGE_UNLOAD,
    [FAKE_KERNEL] = HDI_MESSAGE_KERNEL,
    [FAKE_KERNEL_SHARED] = HDI_MESSAGE_KERNEL_SHARED,
    [FAKE_GLOBAL] = HDI_MESSAGE_GLOBAL,
    [FAKE_BLAS] = HDI_MESSAGE_BLAS,
    [FAKE_ACTIVITIES] = HDI_MESSAGE_ACTIVITIES,
};

uint32_t fake_kind(int which)
{
    return kinds[which];
}

hdi_answer fake_ask(hdi_port *port, int which, const fake_things *t)
{
    const hdi_port_calls *c = port->calls;
    uint64_t number;
    hdi_facts facts;
    hdi_kernel_facts kernel;
    hdi_global_place place;
    hdi_blas_facts blas;
    hdi_activities_facts activities;
    char log[HDI_CODE_LOG_BYTES];
    int descriptor;
    hdi_answer answer;
    hdi_code code = {.bytes = t->file.base, .size = 300, .descriptor = t->file.descriptor};
    switch (which) {
    case FAKE_FACTS_OF:
        return c->facts(port, &facts);
    case FAKE_MEMORY_FREE:
        return c->memory_free(port, &number);
    case FAKE_LANE:
        return c->lane(port, 7, true);
    case FAKE_RESERVE:
        return c->reserve(port, 0x10000, 0x20000, &number);
    case FAKE_UNRESERVE:
        return c->unreserve(port, 0x10000, 0x20000);
    case FAKE_MAP:
        return c->map(port, 0x10000, 0x20000);
    case FAKE_MAP_EACH:
        return c->map_each(port, 0x10000, 0x20000, 0x10000);
    case FAKE_MOVE:
        return c->move(port, 0x10000, 0x40000, 0x20000);
    case FAKE_MAP_PIECE:
        return c->map_piece(port, 0x10000, 0x20000);
    case FAKE_UNMAP:
        return c->unmap(port, 0x10000, 0x20000);
    case FAKE_EXPORT:
        answer = c->export(port, 0x10000, 0x20000, &descriptor);
        if (hdi_answered(answer)) {
            close(descriptor);
        }
        return answer;
    case FAKE_IMPORT:
        return c->import(port, t->file.descriptor, 0x10000, 0x20000);
    case FAKE_PIN:
        return c->pin(port, t->base, t->page, t->file.descriptor, &number);
    case FAKE_UNPIN:
        return c->unpin(port, t->base, t->page);
    case FAKE_LOAD:
        return c->load(port, &code, &number, log);
    case FAKE_UNLOAD:
        return c->unload(port, 77);
    case FAKE_KERNEL:
        return c->kernel(port, 77, "kernel", 5, true, &kernel);
    case FAKE_KERNEL_SHARED:
        return c->kernel_shared(port, 5, 65536);
    case FAKE_ACTIVITIES:
        return c->activities(port, true, &activities);
    case FAKE_GLOBAL:
        return c->global(port, 77, "global", &place);
    default:
        return c->blas(port, 7, 0x10000, 0x20000, &blas);
    }
}

int fake_count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    int count = 0;
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}
