/* heddle/mpi/direct.h - part of heddle/mpi.h: lets MPI read and write device memory itself, between
 * ranks for which a test showed that this works.
 *
 * An MPI may call itself device-aware although its transport cannot reach memory that the driver
 * mapped, or reaches only some of it. Such messages arrive with wrong bytes, and MPI reports no
 * error. So hd_mpi_enable_direct sends test messages between all ranks, and the owner of the memory
 * compares the bytes through Heddle.
 *
 * Threads: any.
 * Locks: hd_mpi.lock for the table of a communicator, which is an attribute of the communicator.
 * Always: the table names only ranks for which all tests passed in both directions.
 */
#ifndef HEDDLE_MPI_DIRECT_H
#define HEDDLE_MPI_DIRECT_H

#include <heddle/mpi/call.h>
#if defined(OPEN_MPI) && defined(__has_include)
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif

HD_BEGIN_DECLS

#define HDMPI_TEST_TAG 1
#define HDMPI_TEST_SHIFT 24 /* bytes before the message, so that it does not begin at a page */

/* ---- what MPI says ---- */

/* True if MPI calls itself able to use device memory. If MPI does not say so, a test could end the
 * process. */
static inline int hdmpi_is_device_aware(MPI_Comm comm)
{
    int aware = 0;
#if (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000000) ||                                                     \
    (defined(MPIX_CUDA_AWARE_SUPPORT) && MPIX_CUDA_AWARE_SUPPORT)
    aware = MPIX_Query_cuda_support();
#endif
    MPI_Info info = MPI_INFO_NULL;
    if (!aware && MPI_Comm_get_info(comm, &info) == MPI_SUCCESS) {
        char kinds[256] = "";
        char key[] = "mpi_memory_alloc_kinds"; /* the key of the standard, since MPI 4.1 */
        int found = 0;
        MPI_Info_get(info, key, (int)sizeof kinds - 1, kinds, &found);
        aware = found && strstr(kinds, "cuda") != NULL;
        MPI_Info_free(&info);
    }
    return aware;
}

/* ---- contexts ---- */

/* Finds the driver's calls that make a device current, and the contexts of all devices. The runtime
 * keeps the contexts alive. A failure only means that MPI gets no current context. hd_mpi.lock is
 * held. */
static inline void hdmpi_contexts_find(hd_mpi *m)
{
    hd_runtime_info info;
    void (*entry)(void) = NULL;
    int (*retain)(void **, int) = NULL;
    int (*release)(int) = NULL;
    int (*find)(int *, const char *) = NULL;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    if (m->context_push || hd_runtime_get_info(m->runtime, &info) || strcmp(info.driver, "nvidia") != 0 ||
        hd_driver_entry(info.driver, "cuDevicePrimaryCtxRetain", &entry)) {
        return; /* host devices need no context */
    }
    memcpy(&retain, &entry, sizeof retain);
    if (hd_driver_entry(info.driver, "cuDevicePrimaryCtxRelease", &entry)) {
        return;
    }
    memcpy(&release, &entry, sizeof release);
    if (hd_driver_entry(info.driver, "cuDeviceGetByPCIBusId", &entry)) {
        return;
    }
    memcpy(&find, &entry, sizeof find);
    for (int i = 0; i < info.device_count && i < HDMPI_DEVICES; i++) {
        hd_device_info device;
        int number = 0;
        memset(&device, 0, sizeof device);
        device.size = sizeof device;
        if (hd_device_get_info(m->runtime, i, &device) || find(&number, device.bus_id) ||
            retain(&m->context[i], number)) {
            m->context[i] = NULL;
        } else {
            release(number);
        }
    }
    if (hd_driver_entry(info.driver, "cuCtxPopCurrent", &entry) == HD_OK) {
        memcpy(&m->context_pop, &entry, sizeof entry);
    }
    if (m->context_pop && hd_driver_entry(info.driver, "cuCtxPushCurrent", &entry) == HD_OK) {
        memcpy(&m->context_push, &entry, sizeof entry);
    }
}

/* ---- the table of a communicator ---- */

static inline int hdmpi_direct_delete(MPI_Comm comm, int keyval, void *table, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    free(table);
    return MPI_SUCCESS;
}

/* Stores the table, which the communicator then owns. table[i] tells whether messages with rank i
 * go directly; table[ranks] tells whether all of them do. */
static inline int hdmpi_direct_store(hd_mpi *m, MPI_Comm comm, unsigned char *table)
{
    hdmpi_lock(m);
    int code = MPI_SUCCESS;
    if (m->direct_keyval == MPI_KEYVAL_INVALID) {
        code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, hdmpi_direct_delete, &m->direct_keyval, NULL);
    }
    code = code == MPI_SUCCESS ? MPI_Comm_set_attr(comm, m->direct_keyval, table) : code;
    if (code == MPI_SUCCESS) {
        __atomic_store_n(&m->uses_direct, 1, __ATOMIC_RELEASE); /* pairs with hdmpi_goes_directly */
    }
    hdmpi_unlock(m);
    return code;
}

/* ---- the test ---- */

/* The communicator, the memory and the results of a test. */
typedef struct hdmpi_trial {
    hd_mpi *m;
    MPI_Comm comm; /* a copy of the program's communicator, for messages of the test alone */
    int rank, ranks, aware;
    size_t bytes;                /* of the largest message */
    unsigned char *sent, *got;   /* in the process's own memory */
    hd_buffer *from, *to;        /* on the device */
    unsigned char *heard, *told; /* for each rank: its messages arrived here; ours arrived there */
} hdmpi_trial;

/* The bytes that `from` sends to `to` in one message. */
static inline void hdmpi_trial_fill(unsigned char *bytes, size_t n, int from, int to, unsigned round)
{
    uint64_t state = ((uint64_t)(unsigned)from << 32 | (unsigned)to) * 0x9e3779b97f4a7c15u + round;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (unsigned char)(state >> 56);
    }
}

/* Writes to device memory, and waits until the bytes are there. */
static inline hd_status hdmpi_trial_write(hd_buffer *buffer, const unsigned char *bytes, size_t n)
{
    const hd_status status = hd_write(buffer, HDMPI_TEST_SHIFT, bytes, n);
    return status ? status : hd_buffer_wait(buffer, HD_WRITE, HD_FOREVER);
}

/* One message to rank `to`, and one from rank `from`. `sends` and `receives` tell which side uses
 * device memory. True: the bytes of rank `from` arrived in their place, and are correct. */
static inline int hdmpi_trial_exchange(hdmpi_trial *t, int to, int from, size_t bytes, int sends, int receives,
                                       unsigned round)
{
    unsigned char *const expected = t->sent; /* filled again after the message */
    const int direct_in = receives && t->aware, direct_out = sends && t->aware;
    hdmpi_trial_fill(t->sent, bytes, t->rank, to, round);
    hdmpi_trial_fill(t->got, bytes, to, t->rank, ~round);
    hd_status status = direct_out ? hdmpi_trial_write(t->from, t->sent, bytes) : HD_OK;
    status = status || !direct_in ? status : hdmpi_trial_write(t->to, t->got, bytes);
    const uint64_t in = hd_buffer_address(t->from), out = hd_buffer_address(t->to);
    hdmpi_lock(t->m);
    const int pushed = hdmpi_context_push(t->m, hd_buffer_device(t->from));
    const int code =
        MPI_Sendrecv(direct_out ? (void *)(uintptr_t)(in + HDMPI_TEST_SHIFT) : (void *)t->sent, (int)bytes, MPI_BYTE,
                     to, HDMPI_TEST_TAG, direct_in ? (void *)(uintptr_t)(out + HDMPI_TEST_SHIFT) : (void *)t->got,
                     (int)bytes, MPI_BYTE, from, HDMPI_TEST_TAG, t->comm, MPI_STATUS_IGNORE);
    hdmpi_context_pop(t->m, pushed);
    hdmpi_unlock(t->m);
    if (direct_in && !status) {
        status = hd_read(t->to, HDMPI_TEST_SHIFT, t->got, bytes);
    }
    hdmpi_trial_fill(expected, bytes, from, t->rank, round);
    return code == MPI_SUCCESS && !status && memcmp(t->got, expected, bytes) == 0;
}

/* All messages with the two peers at the distance `shift`. */
static inline void hdmpi_trial_round(hdmpi_trial *t, int shift)
{
    const int to = (t->rank + shift) % t->ranks, from = (t->rank - shift + t->ranks) % t->ranks;
    const size_t sizes[] = {8, 5000, 70000, t->bytes};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (unsigned sides = 1; sides < 4; sides++) {
            const size_t bytes = sizes[i] < t->bytes ? sizes[i] : t->bytes;
            if (!hdmpi_trial_exchange(t, to, from, bytes, sides & 1, sides & 2, 4 * i + sides)) {
                t->heard[from] = 0;
            }
        }
    }
}

/* Runs all rounds with the memory of one device. */
static inline hd_status hdmpi_trial_device(hdmpi_trial *t, int device)
{
    hd_lane *lane = NULL;
    hd_status status = hd_lane_get_default(t->m->runtime, device, &lane);
    status = status ? status : hd_alloc(lane, t->bytes + HDMPI_TEST_SHIFT, &t->from);
    status = status ? status : hd_alloc(lane, t->bytes + HDMPI_TEST_SHIFT, &t->to);
    t->aware = t->aware && !status; /* the other ranks still wait for the messages */
    for (int shift = 0; shift < t->ranks; shift++) {
        hdmpi_trial_round(t, shift);
    }
    hd_free(t->from);
    hd_free(t->to);
    t->from = t->to = NULL;
    return status;
}

/* Runs the test on all devices, and fills `table`. Returns the code of MPI. */
static inline int hdmpi_trial_run(hdmpi_trial *t, unsigned char *table)
{
    int devices = hd_device_count(t->m->runtime), most = 0, passed = 0;
    hdmpi_lock(t->m);
    int code = MPI_Allreduce(&devices, &most, 1, MPI_INT, MPI_MAX, t->comm);
    hdmpi_unlock(t->m);
    memset(t->heard, 1, (size_t)t->ranks);
    for (int i = 0; i < most && code == MPI_SUCCESS; i++) {
        hdmpi_trial_device(t, i % devices);
    }
    for (int i = 0; i < t->ranks; i++) {
        t->heard[i] = (unsigned char)(t->heard[i] && t->aware);
    }
    hdmpi_lock(t->m);
    code = code == MPI_SUCCESS ? MPI_Alltoall(t->heard, 1, MPI_BYTE, t->told, 1, MPI_BYTE, t->comm) : code;
    hdmpi_unlock(t->m);
    for (int i = 0; i < t->ranks; i++) {
        table[i] = (unsigned char)(t->heard[i] && t->told[i]);
        passed += table[i];
    }
    table[t->ranks] = passed == t->ranks;
    return code;
}

/* ---- the call ---- */

/* Makes the copy of the communicator and the memory of a trial. All ranks agree on the outcome. */
static inline hd_status hdmpi_trial_begin(hdmpi_trial *t, MPI_Comm comm, unsigned char **table)
{
    static const char call[] = "hd_mpi_enable_direct";
    hd_mpi *m = t->m;
    int good, all = 0;
    hd_runtime_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    hdmpi_lock(m);
    int code = MPI_Comm_dup(comm, &t->comm);
    if (code == MPI_SUCCESS) {
        MPI_Comm_set_errhandler(t->comm, MPI_ERRORS_RETURN);
        MPI_Comm_rank(t->comm, &t->rank);
        MPI_Comm_size(t->comm, &t->ranks);
        t->aware = hdmpi_is_device_aware(t->comm);
    }
    hdmpi_unlock(m);
    if (code != MPI_SUCCESS) {
        return hdmpi_fail_mpi(call, "MPI_Comm_dup", code);
    }
    /* the addresses of worker processes mean nothing to this process */
    t->aware = t->aware && hd_runtime_get_info(m->runtime, &info) == HD_OK && strcmp(info.placement, "process") != 0;
    t->bytes = m->piece_bytes;
    t->sent = (unsigned char *)malloc(t->bytes);
    t->got = (unsigned char *)malloc(t->bytes);
    t->heard = (unsigned char *)calloc(2, (size_t)t->ranks);
    *table = (unsigned char *)calloc(1, (size_t)t->ranks + 1);
    t->told = t->heard ? t->heard + t->ranks : NULL;
    good = t->sent && t->got && t->heard && *table;
    hdmpi_lock(m);
    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, t->comm);
    hdmpi_unlock(m);
    return all ? HD_OK : hdmpi_fail(HD_ERROR_HOST_MEMORY, call, "a rank has no memory for the test", 0);
}

static inline hd_status hd_mpi_enable_direct(hd_mpi *m, MPI_Comm comm, int *out)
{
    static const char call[] = "hd_mpi_enable_direct";
    int ranks = 0, inter = 0, aware = 0, most = 0;
    hdmpi_trial t;
    unsigned char *table = NULL;
    hd_status status = hdmpi_comm_check(m, call, comm, &ranks);
    if (status) {
        return status;
    }
    hdmpi_lock(m);
    MPI_Comm_test_inter(comm, &inter);
    hdmpi_unlock(m);
    if (inter) {
        return hdmpi_fail(HD_ERROR_UNSUPPORTED, call, "the communicator is an intercommunicator", 0);
    }
    memset(&t, 0, sizeof t);
    t.m = m;
    t.comm = MPI_COMM_NULL;
    status = hdmpi_trial_begin(&t, comm, &table);
    int code = MPI_SUCCESS;
    if (!status) {
        aware = t.aware;
        hdmpi_lock(m);
        code = MPI_Allreduce(&aware, &most, 1, MPI_INT, MPI_MAX, t.comm);
        hdmpi_unlock(m);
        if (most && code == MPI_SUCCESS) {
            hdmpi_lock(m);
            hdmpi_contexts_find(m);
            hdmpi_unlock(m);
            code = hdmpi_trial_run(&t, table);
        }
    }
    int passed = 0;
    for (int i = 0; i < t.ranks && !status; i++) {
        passed += table[i];
    }
    if (!status && code == MPI_SUCCESS && (passed || m->uses_direct)) { /* replaces an older one */
        code = hdmpi_direct_store(m, comm, table);
        table = code == MPI_SUCCESS ? NULL : table;
    }
    if (t.comm != MPI_COMM_NULL) {
        hdmpi_lock(m);
        MPI_Comm_free(&t.comm);
        hdmpi_unlock(m);
    }
    free(t.sent);
    free(t.got);
    free(t.heard);
    free(table);
    if (!status && code != MPI_SUCCESS) {
        status = hdmpi_fail_mpi(call, "a test message", code);
    }
    if (!status && out) {
        *out = passed;
    }
    return status;
}

HD_END_DECLS
#endif
