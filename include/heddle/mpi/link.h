/* heddle/mpi/link.h - part of heddle/mpi.h: which links are open in this process, which of them
 * uses a communicator, and whether MPI still works.
 *
 * A communicator carries a mark, an attribute of MPI: the number of the link that uses it, and the
 * number of its ranks. The mark counts while that link is open. A duplicate of the communicator has
 * no mark, since its messages meet no others.
 *
 * MPI_Finalize first deletes the attributes of MPI_COMM_SELF. An attribute there tells the link.
 *
 * Threads: any.
 * Locks: hdmpi_process.lock for the list of links and for new marks; hd_mpi.lock is taken inside.
 * Always: no function of MPI's attributes takes hdmpi_process.lock.
 */
#ifndef HEDDLE_MPI_LINK_H
#define HEDDLE_MPI_LINK_H

#include <heddle/mpi/operation.h>

HD_BEGIN_DECLS

/* A place for an open link. Places stay until the process ends, so any thread may read the list
 * without a lock. */
typedef struct hdmpi_place {
    struct hdmpi_place *next;
    hd_mpi *link; /* NULL: none */
    uint32_t number;
} hdmpi_place;

/* Facts about all links of the process. */
typedef struct hdmpi_process {
    pthread_mutex_t lock;
    hdmpi_place *places;
    uint32_t numbers; /* given to links so far */
    int open;         /* links */
    int keyval;       /* of the marks, while a link is open */
} hdmpi_process;

/* All source files of the program share this object, since linkers merge weak definitions. The
 * number in the name changes with the structure. */
extern hdmpi_process hdmpi_process_1;
__attribute__((weak)) hdmpi_process hdmpi_process_1 = {PTHREAD_MUTEX_INITIALIZER, NULL, 0, 0, 0};

/* ---- open links ---- */

static inline int hdmpi_link_is_open(const hd_mpi *m)
{
    /* pairs with the stores of the two functions below */
    const hdmpi_place *p = __atomic_load_n(&hdmpi_process_1.places, __ATOMIC_ACQUIRE);
    while (p && __atomic_load_n(&p->link, __ATOMIC_ACQUIRE) != m) {
        p = p->next;
    }
    return p != NULL;
}

/* Refuses a link that is not open. */
static inline hd_status hdmpi_link_check(const char *call, const hd_mpi *m)
{
    if (!m) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call, "mpi is null; open it with hd_mpi_open", 0);
    }
    if (!hdmpi_link_is_open(m)) {
        return hdmpi_fail(HD_ERROR_HANDLE, call, "mpi is no open link; use it only until hd_mpi_close", 0);
    }
    return HD_OK;
}

/* Refuses a link that is not open, or whose MPI was finalized. */
static inline hd_status hdmpi_link_check_mpi(const char *call, const hd_mpi *m)
{
    const hd_status status = hdmpi_link_check(call, m);
    return status || !hdmpi_link_is_finalized(m)
               ? status
               : hdmpi_fail(HD_ERROR_UNSUPPORTED, call, "MPI was finalized; call MPI_Finalize after hd_mpi_close", 0);
}

static inline void hdmpi_wake(hdmpi_waker *w); /* progress.h */

/* MPI deletes the attribute of MPI_COMM_SELF. */
static inline int hdmpi_link_finalize(MPI_Comm comm, int keyval, void *link, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    hd_mpi *m = (hd_mpi *)link;
    if (m->removed) { /* hdmpi_link_remove deletes the attribute */
        return MPI_SUCCESS;
    }
    __atomic_store_n(&m->finalized, 1, __ATOMIC_RELEASE); /* pairs with hdmpi_link_is_finalized */
    /* A call of MPI that is under way ends first. A program with its own lock holds that lock. */
    if (!m->of_program) {
        pthread_mutex_lock(&m->lock);
        pthread_mutex_unlock(&m->lock);
    }
    hdmpi_wake(m->waker); /* the thread ends what never ends otherwise */
    return MPI_SUCCESS;
}

/* A place without a link; NULL: no memory. The lock is held. */
static inline hdmpi_place *hdmpi_place_find(hdmpi_process *all)
{
    hdmpi_place *p = all->places;
    while (p && p->link) {
        p = p->next;
    }
    if (!p && (p = (hdmpi_place *)calloc(1, sizeof *p)) != NULL) {
        p->next = all->places;
        __atomic_store_n(&all->places, p, __ATOMIC_RELEASE);
    }
    return p;
}

/* Adds a link. On failure, hdmpi_link_remove need not follow. */
static inline hd_status hdmpi_link_add(const char *call, hd_mpi *m)
{
    hdmpi_process *all = &hdmpi_process_1;
    int code = MPI_SUCCESS;
    pthread_mutex_lock(&all->lock);
    hdmpi_place *p = hdmpi_place_find(all);
    hdmpi_lock(m);
    if (p && !all->open) {
        code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &all->keyval, NULL);
    }
    if (p && code == MPI_SUCCESS) {
        code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, hdmpi_link_finalize, &m->keyval, NULL);
        code = code == MPI_SUCCESS ? MPI_Comm_set_attr(MPI_COMM_SELF, m->keyval, m) : code;
    }
    hdmpi_unlock(m);
    if (p && code == MPI_SUCCESS) {
        all->open++;
        p->number = m->number = ++all->numbers;
        __atomic_store_n(&p->link, m, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&all->lock);
    return !p                    ? hdmpi_fail(HD_ERROR_HOST_MEMORY, call, "no memory for a link", 0)
           : code == MPI_SUCCESS ? HD_OK
                                 : hdmpi_fail_mpi(call, "an attribute of the link", code);
}

/* Removes a link. Its marks no longer count. */
static inline void hdmpi_link_remove(hd_mpi *m)
{
    hdmpi_process *all = &hdmpi_process_1;
    pthread_mutex_lock(&all->lock);
    for (hdmpi_place *p = all->places; p; p = p->next) {
        if (p->link == m) {
            __atomic_store_n(&p->link, NULL, __ATOMIC_RELEASE);
        }
    }
    all->open--;
    hdmpi_lock(m);
    if (!hdmpi_link_is_finalized(m)) {
        m->removed = 1;
        MPI_Comm_delete_attr(MPI_COMM_SELF, m->keyval);
        MPI_Comm_free_keyval(&m->keyval);
        if (!all->open) {
            MPI_Comm_free_keyval(&all->keyval);
        }
    }
    hdmpi_unlock(m);
    pthread_mutex_unlock(&all->lock);
}

/* ---- marks ---- */

static inline void *hdmpi_mark_make(const hd_mpi *m, int ranks)
{
    return (void *)(uintptr_t)((uint64_t)m->number << 32 | (uint32_t)ranks);
}

static inline uint32_t hdmpi_mark_number(const void *mark)
{
    return (uint32_t)((uint64_t)(uintptr_t)mark >> 32);
}

/* True if a link with this number is open, and may still use its communicators. A link whose
 * runtime was closed only ends its operations. The lock is held. */
static inline int hdmpi_number_is_used(const hdmpi_process *all, uint32_t number)
{
    const hdmpi_place *p = all->places;
    while (p && (!p->link || p->number != number)) {
        p = p->next;
    }
    int used = p != NULL;
    if (used && hd_device_count(p->link->runtime) == 0) {
        hdmpi_lock(p->link);
        used = p->link->operations > 0;
        hdmpi_unlock(p->link);
    }
    return used;
}

/* Looks at a communicator for the first time: replaces its error handler, and marks it. Returns the
 * code of MPI. */
static inline int hdmpi_comm_look(hd_mpi *m, int keyval, MPI_Comm comm, int *ranks)
{
    MPI_Errhandler handler;
    int inter = 0, code = MPI_Comm_get_errhandler(comm, &handler);
    if (code == MPI_SUCCESS) {
        if (handler == MPI_ERRORS_ARE_FATAL) {
            MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        } else if (handler != MPI_ERRORS_RETURN) {
            MPI_Errhandler_free(&handler);
        }
        code = MPI_Comm_test_inter(comm, &inter);
    }
    if (code == MPI_SUCCESS) {
        code = inter ? MPI_Comm_remote_size(comm, ranks) : MPI_Comm_size(comm, ranks);
    }
    return code == MPI_SUCCESS ? MPI_Comm_set_attr(comm, keyval, hdmpi_mark_make(m, *ranks)) : code;
}

/* Marks a communicator for a link, unless another link uses it. */
static inline hd_status hdmpi_comm_take(hd_mpi *m, const char *call, MPI_Comm comm, int *ranks)
{
    hdmpi_process *all = &hdmpi_process_1;
    void *mark = NULL;
    int found = 0;
    pthread_mutex_lock(&all->lock);
    hdmpi_lock(m);
    int code = MPI_Comm_get_attr(comm, all->keyval, &mark, &found);
    hdmpi_unlock(m);
    const int used = code == MPI_SUCCESS && found && hdmpi_mark_number(mark) != m->number &&
                     hdmpi_number_is_used(all, hdmpi_mark_number(mark));
    if (code == MPI_SUCCESS && !used) {
        hdmpi_lock(m);
        code = hdmpi_comm_look(m, all->keyval, comm, ranks);
        hdmpi_unlock(m);
    }
    pthread_mutex_unlock(&all->lock);
    if (used) {
        return hdmpi_fail(HD_ERROR_ACCESS, call,
                          "another link (hd_mpi_open) uses this communicator; use that link, or a copy of the "
                          "communicator (MPI_Comm_dup)",
                          0);
    }
    return code == MPI_SUCCESS ? HD_OK : hdmpi_fail_mpi(call, "a call for the communicator", code);
}

/* Checks the link and the communicator. *ranks: the ranks that a message can go to. */
static inline hd_status hdmpi_comm_check(hd_mpi *m, const char *call, MPI_Comm comm, int *ranks)
{
    void *mark = NULL;
    int found = 0;
    const hd_status status = hdmpi_link_check_mpi(call, m);
    if (status) {
        return status;
    }
    if (comm == MPI_COMM_NULL) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call, "the communicator is MPI_COMM_NULL", 0);
    }
    hdmpi_lock(m);
    const int code = MPI_Comm_get_attr(comm, hdmpi_process_1.keyval, &mark, &found);
    hdmpi_unlock(m);
    if (code != MPI_SUCCESS || !found || hdmpi_mark_number(mark) != m->number) {
        return hdmpi_comm_take(m, call, comm, ranks);
    }
    *ranks = (int)(uint32_t)(uintptr_t)mark;
    return HD_OK;
}

HD_END_DECLS
#endif
