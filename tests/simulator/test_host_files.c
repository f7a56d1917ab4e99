/* test_host_files.c - the memory files of the host provider: the number of descriptors, and when
 * pages are freed.
 *
 * Promise: All of a device's memory takes one descriptor; pages live exactly while in use.
 * Threads: the main one and the host provider's own, in both processes.
 *
 * The other side is a second process: this program started again, with a host provider of its own.
 * It serves requests from a socket.
 */
#include "host_support.h"
#include <dirent.h>
#include <sys/stat.h>

#define SETTINGS "host_devices=4 host_memory=256M"

enum { PIECES = 100, STEPS = 3000, FEW = 12 };

static size_t descriptors(void)
{
    size_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n;
}

/* ---- shared by both sides ---- */

enum {
    MAKE = 1, /* a: granules, b: word to fill it with; answers with a handle */
    EXPORT,   /* a: handle; answers with a descriptor */
    IMPORT,   /* with a descriptor; answers with a handle */
    READ,     /* a: handle, b: granules; answers with the word in all of it, or 0 */
    RELEASE   /* a: handle */
};

static uint32_t read_all(hdcu_deviceptr at, size_t granules)
{
    size_t n = granules * GRANULE / 4;
    uint32_t *words = malloc(n * 4), found = 0;
    if (words && d->cuMemcpyDtoH(words, at, n * 4) == HDCU_SUCCESS) {
        found = words[0];
        for (size_t i = 0; i < n; i++) {
            found = words[i] == found ? found : 0;
        }
    }
    free(words);
    return found;
}

/* Maps the memory briefly. Fills it with `word`, or, if that is 0, reads its word into *found. */
static bool visit(hdcu_memhandle handle, size_t granules, uint32_t word, uint64_t *found)
{
    hdcu_deviceptr at;
    hdcu_mem_access_desc access = {{HDCU_MEM_LOCATION_TYPE_DEVICE, 0}, HDCU_MEM_ACCESS_READWRITE};
    size_t bytes = granules * GRANULE;
    bool good = !d->cuMemAddressReserve(&at, bytes, 0, 0, 0) && !d->cuMemMap(at, bytes, 0, handle, 0) &&
                !d->cuMemSetAccess(at, bytes, &access, 1);
    if (good && word) {
        good = !d->cuMemsetD32Async(at, word, bytes / 4, NULL) && !d->cuCtxSynchronize();
    } else if (good) {
        *found = read_all(at, granules);
    }
    return good && !d->cuMemUnmap(at, bytes) && !d->cuMemAddressFree(at, bytes);
}

static bool make(int device, role_message *m)
{
    hdcu_mem_prop prop = {.type = HDCU_MEM_ALLOCATION_TYPE_PINNED,
                          .requested_handle_types = HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                          .location = {HDCU_MEM_LOCATION_TYPE_DEVICE, device}};
    uint64_t none;
    hdcu_memhandle handle;
    bool good =
        !d->cuMemCreate(&handle, m->a * GRANULE, &prop, 0) && (m->b == 0 || visit(handle, m->a, (uint32_t)m->b, &none));
    m->a = handle;
    return good;
}

static bool act(role_message *m, int given, int *sent)
{
    hdcu_memhandle handle;
    switch (m->kind) {
    case MAKE:
        return make(0, m);
    case EXPORT:
        return !d->cuMemExportToShareableHandle(sent, m->a, HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    case IMPORT:
        if (d->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)given, 1) != HDCU_SUCCESS) {
            return false;
        }
        m->a = handle;
        return true;
    case READ:
        return visit(m->a, m->b, 0, &m->a);
    case RELEASE:
        return !d->cuMemRelease(m->a);
    default:
        return false;
    }
}

static int other(const char *settings)
{
    role_message m;
    int given;
    hdcu_context context;
    alarm(ROLE_SECONDS * 4);
    if (open_with(settings, &d) != HD_OK || d->cuDevicePrimaryCtxRetain(&context, 0) || d->cuCtxSetCurrent(context)) {
        return 1;
    }
    while (role_receive(ROLE_SOCKET, &m, &given)) {
        int sent = -1;
        if (!act(&m, given, &sent) || !role_send(ROLE_SOCKET, m, sent)) {
            return 1;
        }
        if (given >= 0) {
            close(given);
        }
        if (sent >= 0) {
            close(sent);
        }
    }
    return 0;
}

/* ---- one descriptor ---- */

static void a_device_takes_one_descriptor(void **state)
{
    (void)state;
    open_host(SETTINGS);
    use_device(0);
    size_t before = descriptors();
    hdcu_memhandle handles[4][PIECES / 4];
    for (int device = 0; device < 4; device++) {
        for (int i = 0; i < PIECES / 4; i++) {
            role_message m = {.kind = MAKE, .a = 1 + (uint64_t)i % 3};
            assert_true(make(device, &m));
            handles[device][i] = m.a;
            assert_int_equal(descriptors(), before + (size_t)device + 1);
        }
    }
    for (int device = 0; device < 4; device++) {
        for (int i = 0; i < PIECES / 4; i++) {
            OK(d->cuMemRelease(handles[device][i]));
        }
        assert_int_equal(descriptors(), before + 3 - (size_t)device);
    }
    leave_device(0);
    hdi_providers_close_driver(d);
}

static role_message ask(role_process *p, role_message m, int give, int *descriptor)
{
    assert_true(role_send(p->socket, m, give));
    assert_true(role_receive(p->socket, &m, descriptor));
    return m;
}

static void all_imports_of_a_device_take_one_descriptor(void **state)
{
    (void)state;
    hdcu_memhandle handles[PIECES];
    role_process p = role_start("other", SETTINGS);
    open_host(SETTINGS);
    use_device(0);
    size_t before = descriptors();
    for (int i = 0; i < PIECES; i++) {
        int descriptor;
        role_message m = ask(&p, (role_message){.kind = MAKE, .a = 1, .b = 100 + (uint64_t)i}, -1, &descriptor);
        uint64_t handle = m.a;
        ask(&p, (role_message){.kind = EXPORT, .a = handle}, -1, &descriptor);
        assert_true(descriptor >= 3);
        OK(d->cuMemImportFromShareableHandle(&handles[i], (void *)(intptr_t)descriptor, 1));
        close(descriptor);
        assert_int_equal(descriptors(), before + 1);
    }
    for (int i = 0; i < PIECES; i++) {
        role_message m = {.kind = READ, .a = handles[i], .b = 1};
        assert_true(act(&m, -1, NULL));
        assert_int_equal(m.a, 100 + i);
        OK(d->cuMemRelease(handles[i]));
    }
    assert_int_equal(descriptors(), before);
    leave_device(0);
    hdi_providers_close_driver(d);
    role_end(&p, true);
}

/* ---- pages, compared with a model ---- */

typedef struct piece {
    bool used;
    int home; /* the side whose file contains it */
    uint64_t granules;
    uint32_t word;
    uint64_t handle[2]; /* on each side */
    int handles[2];     /* references of each handle */
    int descriptor;     /* of an export on this side; -1: none */
} piece;

typedef struct model {
    role_process there;
    piece pieces[FEW];
    int files[2]; /* the files of both sides, to count their pages */
    uint64_t seed;
    uint32_t words;
} model;

static uint64_t draw(model *w, uint64_t below)
{
    w->seed = w->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (w->seed >> 33) % below;
}

/* Makes a request of a side; side 0 is this process. */
static role_message request(model *w, int side, role_message m, int give, int *descriptor)
{
    int none;
    if (side) {
        return ask(&w->there, m, give, descriptor ? descriptor : &none);
    }
    assert_true(act(&m, give, descriptor));
    return m;
}

static void piece_make(model *w, piece *p, int side)
{
    *p = (piece){.used = true, .home = side, .granules = 1 + draw(w, 3), .word = ++w->words, .descriptor = -1};
    role_message m = {.kind = MAKE, .a = p->granules, .b = p->word};
    p->handle[side] = request(w, side, m, -1, NULL).a;
    p->handles[side] = 1;
}

static void piece_step(model *w, piece *p)
{
    int side = (int)draw(w, 2);
    switch (draw(w, 4)) {
    case 0: /* export */
        if (p->handles[side] > 0 && p->descriptor < 0) {
            request(w, side, (role_message){.kind = EXPORT, .a = p->handle[side]}, -1, &p->descriptor);
            assert_true(p->descriptor >= 3);
        }
        break;
    case 1: /* import */
        if (p->descriptor >= 0) {
            uint64_t handle = request(w, side, (role_message){.kind = IMPORT}, p->descriptor, NULL).a;
            assert_true(p->handles[side] == 0 || handle == p->handle[side]);
            p->handle[side] = handle;
            p->handles[side]++;
            role_message m = {.kind = READ, .a = handle, .b = p->granules};
            assert_int_equal(request(w, side, m, -1, NULL).a, p->word);
        }
        break;
    case 2: /* release */
        if (p->handles[side] > 0) {
            request(w, side, (role_message){.kind = RELEASE, .a = p->handle[side]}, -1, NULL);
            p->handles[side]--;
        }
        break;
    /* close; if the export is the last reference, its pages stay until the end of the file */
    default:
        if (p->descriptor >= 0 && p->handles[0] + p->handles[1] > 0) {
            close(p->descriptor);
            p->descriptor = -1;
        }
        break;
    }
    p->used = p->handles[0] + p->handles[1] > 0 || p->descriptor >= 0;
}

static void pages_are_as_the_model_says(const model *w, const piece anchors[2])
{
    for (int side = 0; side < 2; side++) {
        uint64_t granules = anchors[side].granules;
        for (int i = 0; i < FEW; i++) {
            granules += w->pieces[i].used && w->pieces[i].home == side ? w->pieces[i].granules : 0;
        }
        struct stat facts;
        assert_int_equal(fstat(w->files[side], &facts), 0);
        assert_int_equal((uint64_t)facts.st_blocks * 512, granules * GRANULE);
    }
}

static void pages_go_with_the_last_that_has_them(void **state)
{
    (void)state;
    model w = {.seed = 7};
    piece anchors[2];
    w.there = role_start("other", SETTINGS);
    open_host(SETTINGS);
    use_device(0);
    for (int side = 0; side < 2; side++) {
        int descriptor;
        char path[64];
        piece_make(&w, &anchors[side], side); /* keeps the file open */
        request(&w, side, (role_message){.kind = EXPORT, .a = anchors[side].handle[side]}, -1, &descriptor);
        snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
        /* the same file, but no reference to the piece */
        w.files[side] = open(path, O_RDWR | O_CLOEXEC);
        assert_true(w.files[side] >= 0);
        close(descriptor);
    }
    for (int i = 0; i < STEPS; i++) {
        piece *p = &w.pieces[draw(&w, FEW)];
        if (p->used) {
            piece_step(&w, p);
        } else {
            piece_make(&w, p, (int)draw(&w, 2));
        }
        pages_are_as_the_model_says(&w, anchors);
    }
    leave_device(0);
    hdi_providers_close_driver(d);
    close(w.files[0]);
    close(w.files[1]);
    role_end(&w.there, true);
}

static void a_wrong_position_is_no_import(void **state)
{
    (void)state;
    int descriptor = -1;
    hdcu_memhandle handle;
    open_host(SETTINGS);
    use_device(0);
    role_message m = {.kind = MAKE, .a = 2};
    assert_true(make(0, &m));
    handle = m.a;
    m = (role_message){.kind = EXPORT, .a = handle};
    assert_true(act(&m, -1, &descriptor));
    const off_t wrong[] = {0, (off_t)5 << 23, INT64_MAX, (off_t)1 << 62 | 1};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(lseek(descriptor, wrong[i], SEEK_SET), wrong[i]);
        m = (role_message){.kind = IMPORT};
        assert_int_equal(d->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptor, 1),
                         HDCU_ERROR_INVALID_VALUE);
    }
    close(descriptor);
    leave_device(0);
    hdi_providers_close_driver(d);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "other") == 0) {
        return other(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_takes_one_descriptor),
        cmocka_unit_test(all_imports_of_a_device_take_one_descriptor),
        cmocka_unit_test(pages_go_with_the_last_that_has_them),
        cmocka_unit_test(a_wrong_position_is_no_import),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
