/* workers.h - the application's side of a runtime's worker processes: starts, watches and ends
 * them.
 *
 * One thread per runtime, the watcher of the workers, starts all worker processes and lives as long
 * as these processes. The kernel kills a worker when the thread that started it ends. So no worker
 * outlives the application, however the application ends. The watcher notices when a worker ends,
 * is stopped, or makes no step while it has work. Then it declares the worker's device lost.
 *
 * Threads: any, unless noted otherwise.
 * Locks: one mutex guards the states of the processes. A thread also holds this mutex while it
 * starts a process or connects a port. While a thread holds the mutex, it takes only the port's own
 * locks and the losses' mutex. No thread holds the mutex while a device is declared lost.
 * Always: the device of a dead worker is declared lost only when the process is gone. So the
 * process can no longer write to the memory that it shared with others. A process that cannot be
 * killed for 5 seconds counts as gone.
 */
#ifndef HDI_WORKER_WORKERS_H
#define HDI_WORKER_WORKERS_H

#include "engine/runtime.h"
#include "worker/part.h"

typedef struct hdi_workers hdi_workers;

/* Finds the worker program and starts the watcher. Errors: SYSTEM (also: no worker program, the
 * message lists the places), HOST_MEMORY. */
hd_status hdi_workers_create(hd_runtime *rt);

/* Ends all workers and the watcher; no thread may use their ports meanwhile. Does nothing if
 * hdi_worker_of(runtime)->workers is NULL. */
void hdi_workers_release(hd_runtime *rt);

/* Starts a process for device `index` (the hdi_device need not exist yet). Errors: SYSTEM,
 * TIMEOUT. */
hd_status hdi_worker_spawn(hd_runtime *rt, int index);
/* Spares: workers that started the driver and drive no device yet. The option spare_workers gives
 * their number. */
/* Makes the watcher start spares in the background from here on, or again after hdi_spares_hold.
 * Errors: OPTION, HOST_MEMORY. */
hd_status hdi_spares_want(hd_runtime *rt);
/* Makes the watcher start no more spares from here on, since that would slow a restart down. */
void hdi_spares_hold(hd_runtime *rt);
/* Makes a spare the process for device `index`, like hdi_worker_spawn. The spare may be about to
 * end. False: there is none. */
bool hdi_spare_take(hd_runtime *rt, int index);

/* True if a worker was started and is not connected to its device yet. Only the thread that starts
 * the worker may call this and the next functions. */
bool hdi_worker_is_begun(hd_runtime *rt, int index);

typedef struct hdi_discovery {
    const hdi_provider *provider;
    int driver_version, device_count;
} hdi_discovery;

/* Makes a fresh process start the driver and report its devices. Errors: SYSTEM, OPTION. */
hd_status hdi_worker_ask(hd_runtime *rt, int index);
/* Waits for the report that hdi_worker_ask requested. Errors: those of hdi_providers_open_driver in
 * the worker; SYSTEM. */
hd_status hdi_worker_discover(hd_runtime *rt, int index, hdi_discovery *out);

/* Tells a fresh process which device it drives. The devices in rt->devices[] already have their
 * channels. Errors: SYSTEM. */
hd_status hdi_worker_handshake(hd_runtime *rt, int index);

/* Waits until the process drives its device, after its handshake. Fills in the device's facts, and
 * connects its port. From here on the watcher watches the worker. Errors: those of the set-up in
 * the worker; SYSTEM. */
hd_status hdi_worker_await(hd_runtime *rt, int index);

/* Kills the process for the reason `code` (HDI_GONE_*, or a code of the worker's driver). Its
 * device is lost as soon as the process is gone. `connection`: kill it only if its port still uses
 * this connection; 0: kill it in any case. */
void hdi_worker_kill(hd_runtime *rt, int index, uint64_t connection, int code);

/* Ends a device's process that is not wanted after all, and waits until the process is gone. */
void hdi_worker_shut_down(hd_runtime *rt, int index);

/* Like hdi_worker_shut_down, but does not wait; hd_close waits for the process. */
void hdi_worker_drop(hd_runtime *rt, int index);

/* Call it after a thread other than the watcher declared a device lost. The watcher then drains the
 * device (hdi_device_drain). */
void hdi_workers_drain(hd_runtime *rt);

/* True if the process that drives the device is there. Once this function returned false, the end
 * of the process no longer counts as a loss. */
bool hdi_worker_drives(hd_runtime *rt, int index);

/* The path of the worker program; "": the runtime has no workers. */
const char *hdi_worker_program(const hd_runtime *rt);

/* The process of device `index`; 0: none. */
int hdi_worker_pid(hd_runtime *rt, int index);

/* service.c: the work of a worker process with its two sockets until they are closed. Returns its
 * exit status. */
int hdi_worker_service(int memory_socket, int code_socket);

/* Exit statuses of the worker program, in addition to 0. */
#define HDI_WORKER_EXIT_USAGE 2
/* the driver ended all work; the channel's `lost_by` gives the reason */
#define HDI_WORKER_EXIT_LOST 3

/* Descriptors that a worker process starts with, the first one HDI_PROGRAM_DESCRIPTOR. */
#define HDI_WORKER_MEMORY_SOCKET 3
#define HDI_WORKER_CODE_SOCKET 4

#endif
