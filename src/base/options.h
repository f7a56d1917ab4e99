/* options.h - the one table of options: environment, hd_options.settings, `heddle info` and the
 * docs all come from it.
 *
 * Threads: parsing runs in hd_open; a parsed table is read-only. Locks: none.
 */
#ifndef HDI_BASE_OPTIONS_H
#define HDI_BASE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <heddle/runtime.h>

/* The words of options with a choice: X(OPTION, WORD, "word", "meaning"). A parsed option holds the
 * index of a word in this list, such as HDI_DRIVER_AUTO. */
#define HDI_CHOICES_DRIVER(X)                                                                                          \
    X(DRIVER, AUTO, "auto", "nvidia where it works, else host")                                                        \
    X(DRIVER, NVIDIA, "nvidia", "GPUs, with NVIDIA's driver")                                                          \
    X(DRIVER, HOST, "host", "host devices, which simulate GPUs")
#define HDI_CHOICES_PLACEMENT(X)                                                                                       \
    X(PLACEMENT, INLINE, "inline", "on the threads that call")                                                         \
    X(PLACEMENT, THREAD, "thread", "on a thread per device")                                                           \
    X(PLACEMENT, PROCESS, "process", "in a worker process per device")
#define HDI_CHOICES_LAUNCH_WAIT(X)                                                                                     \
    X(LAUNCH_WAIT, OFF, "off", "it returns at once")                                                                   \
    X(LAUNCH_WAIT, ON, "on", "it waits until its kernel has ended, and returns its failure, which is slow")
#define HDI_CHOICES_MEMORY_DEBUG(X)                                                                                    \
    X(MEMORY_DEBUG, OFF, "off", "nothing of that")                                                                     \
    X(MEMORY_DEBUG, ON, "on", "all of it")                                                                             \
    X(MEMORY_DEBUG, REPORT, "report", "also a line for each finding")
#define HDI_CHOICES_MODULE_LOADING(X)                                                                                  \
    X(MODULE_LOADING, LAZY, "lazy", "with the first launch of one of its kernels there")                               \
    X(MODULE_LOADING, EAGER, "eager", "with hd_module_load")
#define HDI_CHOICES_PEERS(X)                                                                                           \
    X(PEERS, VERIFY, "verify", "where a test moved bytes there and back")                                              \
    X(PEERS, TRUST, "trust", "where the driver reports it")                                                            \
    X(PEERS, OFF, "off", "never")
#define HDI_CHOICES_TRACE_DETAIL(X)                                                                                    \
    X(TRACE_DETAIL, EDGES, "edges", "of busy stretches of lanes")                                                      \
    X(TRACE_DETAIL, FULL, "full", "of each operation")                                                                 \
    X(TRACE_DETAIL, CUPTI, "cupti", "of busy stretches, and those that CUPTI reports")
#define HDI_CHOICES_HOST_PEERS(X)                                                                                      \
    X(HOST_PEERS, ALL, "all", "each one that of all others")                                                           \
    X(HOST_PEERS, NONE, "none", "none")                                                                                \
    X(HOST_PEERS, RING, "ring", "each one that of its two neighbours")
#define HDI_CHOICES_ENVIRONMENT_CHECK(X)                                                                               \
    X(ENVIRONMENT_CHECK, OFF, "off", "nothing is printed")                                                             \
    X(ENVIRONMENT_CHECK, ON, "on", "one line, once")

#define HDI_CHOICE_NUMBER(option, word, text, meaning) HDI_##option##_##word,
enum { HDI_CHOICES_DRIVER(HDI_CHOICE_NUMBER) };
enum { HDI_CHOICES_PLACEMENT(HDI_CHOICE_NUMBER) };
enum { HDI_CHOICES_LAUNCH_WAIT(HDI_CHOICE_NUMBER) };
enum { HDI_CHOICES_MEMORY_DEBUG(HDI_CHOICE_NUMBER) };
enum { HDI_CHOICES_MODULE_LOADING(HDI_CHOICE_NUMBER) };
enum { HDI_CHOICES_PEERS(HDI_CHOICE_NUMBER) };
enum { HDI_CHOICES_TRACE_DETAIL(HDI_CHOICE_NUMBER) };
enum { HDI_CHOICES_HOST_PEERS(HDI_CHOICE_NUMBER) };
enum { HDI_CHOICES_ENVIRONMENT_CHECK(HDI_CHOICE_NUMBER) };
#undef HDI_CHOICE_NUMBER

/* X(field, ENVIRONMENT, kind, default, low, high, help)
 * The setting's name is the field's name. Kinds:
 *   - CHOICE: `low` is its list of words
 *   - INTEGER: low..high
 *   - BYTES: in the format of option_parse_bytes (options.c), low..high
 *   - AMOUNT: as BYTES, or a share in percent: "80%"
 *   - TEXT
 * Limits are written as a user would write them. HDI_OPTION_HELP adds the words or the limits to
 * the help. */
#define HDI_OPTION_MAP(X)                                                                                              \
    X(driver, "HEDDLE_DRIVER", CHOICE, "auto", HDI_CHOICES_DRIVER, 0, "provider of the driver entry points")           \
    X(placement, "HEDDLE_PLACEMENT", CHOICE, "thread", HDI_CHOICES_PLACEMENT, 0, "where the engines run")              \
    X(devices, "HEDDLE_DEVICES", TEXT, "all", 0, 0, "devices to open: all, or a list such as 0,2,3")                   \
    X(lane_slots, "HEDDLE_LANE_SLOTS", INTEGER, "1024", "64", "65536",                                                 \
      "64-byte command slots in a lane's ring, a power of two; bounds the work in flight")                             \
    X(spin_us, "HEDDLE_SPIN_US", INTEGER, "-1", "-1", "1000000",                                                       \
      "microseconds that waits and idle engines spin before they sleep; -1: by the number of processors")              \
    X(submit_timeout, "HEDDLE_SUBMIT_TIMEOUT", INTEGER, "-1", "-1", "86400000",                                        \
      "milliseconds that a submission waits for room in a full lane; -1: without limit")                               \
    X(transfer_timeout, "HEDDLE_TRANSFER_TIMEOUT", INTEGER, "-1", "-1", "86400000",                                    \
      "milliseconds that hd_read, hd_write, hd_copy and hd_map wait for earlier work; -1: without limit")              \
    X(close_timeout, "HEDDLE_CLOSE_TIMEOUT", INTEGER, "10000", "0", "86400000",                                        \
      "milliseconds that hd_close waits for work in flight, functions of hd_launch_host and ends of claims")           \
    X(chains, "HEDDLE_CHAINS", INTEGER, "32", "0", "32",                                                               \
      "launches of a lane that an engine gives to the driver together, at most; 0: each by itself")                    \
    X(watchdog, "HEDDLE_WATCHDOG", INTEGER, "0", "0", "86400000",                                                      \
      "milliseconds that an operation at the front of its lane may take before its device counts as lost; 0: no "      \
      "limit")                                                                                                         \
    X(launch_wait, "HEDDLE_LAUNCH_WAIT", CHOICE, "off", HDI_CHOICES_LAUNCH_WAIT, 0,                                    \
      "for debugging: what hd_launch does")                                                                            \
    X(worker, "HEDDLE_WORKER", TEXT, "", 0, 0,                                                                         \
      "path of the worker program for placement=process; empty: heddle-worker beside the library")                     \
    X(worker_timeout, "HEDDLE_WORKER_TIMEOUT", INTEGER, "20000", "100", "86400000",                                    \
      "milliseconds that a worker may be stopped, stay in one driver call, or leave a request unanswered "             \
      "(10 times that behind much unfinished work, or for code)")                                                      \
    X(memory_limit, "HEDDLE_MEMORY_LIMIT", AMOUNT, "100%", "2M", "64T",                                                \
      "physical memory that may be held on each device, in bytes or as a share of it")                                 \
    X(pinned_limit, "HEDDLE_PINNED_LIMIT", AMOUNT, "50%", "2M", "64T",                                                 \
      "pinned host memory that may be held, in bytes or as a share of the machine's memory")                           \
    X(memory_reclaim, "HEDDLE_MEMORY_RECLAIM", INTEGER, "5", "0", "80",                                                \
      "percent of the time that early calls of the reclaim callback may take; 0: only at the limit")                   \
    X(memory_timeout, "HEDDLE_MEMORY_TIMEOUT", INTEGER, "5000", "0", "86400000",                                       \
      "milliseconds without anything freed or finished after which an allocation at a limit gives up; at once where "  \
      "no other thread uses the library")                                                                              \
    X(memory_idle, "HEDDLE_MEMORY_IDLE", INTEGER, "10000", "0", "86400000",                                            \
      "milliseconds without growth after which idle granules and pinned memory are given back; 0: never, as with "     \
      "placement=inline")                                                                                              \
    X(memory_debug, "HEDDLE_MEMORY_DEBUG", CHOICE, "off", HDI_CHOICES_MEMORY_DEBUG, 0,                                 \
      "guard bytes around device buffers, poison on free, leaks and double frees found; slow")                         \
    X(memory_debug_file, "HEDDLE_MEMORY_DEBUG_FILE", TEXT, "", 0, 0,                                                   \
      "file that memory_debug=report appends to; empty: stderr")                                                       \
    X(hw_queues, "HEDDLE_HW_QUEUES", INTEGER, "8", "1", "32",                                                          \
      "hardware queues that NVIDIA's driver is asked for on each device, unless CUDA_DEVICE_MAX_CONNECTIONS is set; "  \
      "more "                                                                                                          \
      "lanes than queues hold each other up, more queues make hd_open and hd_close slower")                            \
    X(module_loading, "HEDDLE_MODULE_LOADING", CHOICE, "lazy", HDI_CHOICES_MODULE_LOADING, 0,                          \
      "when a device gets a module's code")                                                                            \
    X(spare_workers, "HEDDLE_SPARE_WORKERS", INTEGER, "0", "0", "8",                                                   \
      "worker processes kept in reserve with the driver started, so that hd_device_restart is quick; each holds host " \
      "memory, but no device memory")                                                                                  \
    X(peers, "HEDDLE_PEERS", CHOICE, "verify", HDI_CHOICES_PEERS, 0, "access to other devices' memory")                \
    X(peer_timeout, "HEDDLE_PEER_TIMEOUT", INTEGER, "20000", "100", "86400000",                                        \
      "milliseconds that the peer test may take to open the devices, and then for each pair of devices")               \
    X(probe, "HEDDLE_PROBE", TEXT, "", 0, 0,                                                                           \
      "path of the program that tests peer access; empty: heddle-probe beside the library")                            \
    X(cache, "HEDDLE_CACHE", TEXT, "", 0, 0,                                                                           \
      "folder of the results of peer tests and of compiled kernels; empty: heddle in the user's cache folder, none: "  \
      "nowhere")                                                                                                       \
    X(copy_threads, "HEDDLE_COPY_THREADS", INTEGER, "-1", "-1", "64",                                                  \
      "threads that copy between the program's memory and pinned memory; -1: by the number of processors, 0: only "    \
      "the caller, as with placement=inline")                                                                          \
    X(call_threads, "HEDDLE_CALL_THREADS", INTEGER, "4", "1", "256",                                                   \
      "functions of hd_launch_host and hd_claim_on_ready that run at the same time, besides those that wait in "       \
      "Heddle")                                                                                                        \
    X(blas, "HEDDLE_BLAS", TEXT, "auto", 0, 0,                                                                         \
      "library for matrix products: auto (cuBLAS or an installed CPU library, else built in), builtin, or a path")     \
    X(nvrtc, "HEDDLE_NVRTC", TEXT, "auto", 0, 0,                                                                       \
      "library that compiles CUDA C++ for hd_module_compile: auto (libnvrtc of the CUDA toolkit), or a path")          \
    X(nvjitlink, "HEDDLE_NVJITLINK", TEXT, "auto", 0, 0,                                                               \
      "library that links device code for hd_module_link: auto (libnvJitLink of the CUDA toolkit), or a path")         \
    X(stats, "HEDDLE_STATS", TEXT, "0", 0, 0,                                                                          \
      "report on memory at hd_close: 0, 1 (to stderr), or a file to append to (JSON if it ends in .json)")             \
    X(trace, "HEDDLE_TRACE", TEXT, "", 0, 0,                                                                           \
      "file for a trace from hd_open to hd_close (heddle/trace.h); further runtimes, also of other processes "         \
      "meanwhile, write FILE.2, FILE.3; empty: none")                                                                  \
    X(trace_rank, "HEDDLE_TRACE_RANK", INTEGER, "-1", "-1", "2147483647",                                              \
      "number of this process among the ranks of the program, which hd_mpi_runtime_open sets; the trace's file "       \
      "run.trace becomes run.3.trace; -1: none")                                                                       \
    X(trace_detail, "HEDDLE_TRACE_DETAIL", CHOICE, "edges", HDI_CHOICES_TRACE_DETAIL, 0, "device times in a trace")    \
    X(cupti, "HEDDLE_CUPTI", TEXT, "auto", 0, 0,                                                                       \
      "library of trace_detail=cupti: auto (libcupti of the CUDA toolkit), or a path")                                 \
    X(trace_limit, "HEDDLE_TRACE_LIMIT", BYTES, "4G", "64K", "64T",                                                    \
      "bytes of a trace's file; what comes later is left out, and counted")                                            \
    X(host_devices, "HEDDLE_HOST_DEVICES", INTEGER, "4", "1", "64", "number of host devices")                          \
    X(host_memory, "HEDDLE_HOST_MEMORY", BYTES, "1G", "2M", "64T", "memory of each host device")                       \
    X(host_peers, "HEDDLE_HOST_PEERS", CHOICE, "all", HDI_CHOICES_HOST_PEERS, 0,                                       \
      "which host devices can access each other's memory")                                                             \
    X(host_corrupt, "HEDDLE_HOST_CORRUPT", TEXT, "", 0, 0,                                                             \
      "pairs of host devices such as 0>1 2>0: what the first one writes to the second one's memory is lost; or "       \
      "0>1:KIND: only copies, only stores (of kernels), only atomics, hang, fault (of the device), crash (of its "     \
      "process), slow")                                                                                                \
    X(host_schedule, "HEDDLE_HOST_SCHEDULE", INTEGER, "0", "0", "9223372036854775807",                                 \
      "seed that perturbs the order in which independent work runs on host devices; 0: off")                           \
    X(fault, "HEDDLE_FAULT", TEXT, "", 0, 0,                                                                           \
      "fails driver calls on purpose: [ENTRY:]N[+][=CODE], the Nth call (N+: and every later one; ~N: one in N, "      \
      "without a pattern) of ENTRY or of all")                                                                         \
    X(delay, "HEDDLE_DELAY", TEXT, "", 0, 0,                                                                           \
      "delays driver calls on purpose: [ENTRY:]N[+]=MICROSECONDS, counted as in HEDDLE_FAULT")                         \
    X(environment_check, "HEDDLE_ENVIRONMENT_CHECK", CHOICE, "on", HDI_CHOICES_ENVIRONMENT_CHECK, 0,                   \
      "what hd_open prints on stderr about variables HEDDLE_... that are no options")

/* The help and the allowed values, as a string. */
#define HDI_OPTION_HELP(kind, low, high, help) help HDI_OPTION_VALUES_##kind(low, high)
#define HDI_OPTION_MEANING(option, word, text, meaning) "; " text ": " meaning
#define HDI_OPTION_VALUES_CHOICE(low, high) low(HDI_OPTION_MEANING)
#define HDI_OPTION_VALUES_INTEGER(low, high) "; " low " to " high
#define HDI_OPTION_VALUES_BYTES(low, high) "; " low " to " high
#define HDI_OPTION_VALUES_AMOUNT(low, high) "; " low " to " high ", or a share such as 80%"
#define HDI_OPTION_VALUES_TEXT(low, high)

/* The types of parsed settings. CHOICE is the index of the word in its list; TEXT is a string that
 * the table owns. */
typedef int hdi_option_CHOICE;
typedef const char *hdi_option_TEXT;
typedef int64_t hdi_option_INTEGER;
typedef int64_t hdi_option_BYTES;
typedef struct hdi_option_AMOUNT {
    int64_t bytes; /* the amount, if share is 0 */
    double share;  /* 0 < share <= 1: the amount as a share of the option's whole */
} hdi_option_AMOUNT;

/* HDI_OPTION_AT_NAME: an option's index in the table. */
enum {
#define HDI_OPTION_AT(field, env, kind, def, low, high, help) HDI_OPTION_AT_##field,
    HDI_OPTION_MAP(HDI_OPTION_AT)
#undef HDI_OPTION_AT
};

/* The value of an option as text, also of a choice. */
#define HDI_OPTION_TEXT(options, field) ((options)->text[HDI_OPTION_AT_##field])

typedef struct hdi_options {
#define HDI_OPTION_FIELD(field, env, kind, def, low, high, help) hdi_option_##kind field;
    HDI_OPTION_MAP(HDI_OPTION_FIELD)
#undef HDI_OPTION_FIELD
    char *text[48]; /* the value of each option as text, in table order; owned */
    bool is_default[48];
    hd_option_source source[48];
} hdi_options;

/* Reads the defaults, then the environment, then `settings` (NULL: none). Ignores the environment
 * if the program runs with more rights than its caller (set-uid, capabilities). `settings` is
 * "name=value name=value", separated by blanks or commas. "..." around a value allows separators in
 * it. On failure the caller owns nothing. Errors: OPTION (unknown name, or a value out of its
 * range; the message names option, value and the allowed values), HOST_MEMORY. */
hd_status hdi_options_parse(const char *settings, hdi_options *out);
/* hdi_options_parse without the environment. */
hd_status hdi_options_parse_settings(const char *settings, hdi_options *out);
void hdi_options_release(hdi_options *options);

/* The settings in the format of hdi_options_parse, for a worker process: name="value" for every
 * option except the worker's path. False: they need more than `bytes`, or a value contains
 * quotes. */
bool hdi_options_format(const hdi_options *options, char *out, size_t bytes);

typedef struct hdi_option_row {
    const char *name, *environment, *default_text;
    const char *help;     /* the text of HDI_OPTION_HELP */
    const char *kind;     /* "choice", "integer", "bytes", "amount", "text" */
    const char *choices;  /* "a|b|c" or NULL */
    const char *meanings; /* "a: its meaning; b: ..." or NULL */
} hdi_option_row;

/* Row `index` of the table, NULL past the end. */
const hdi_option_row *hdi_option_row_at(int index);

enum { HDI_OPTION_NAME = 64 };

/* True if the variable "NAME=value" begins like an option's variable, but is none. Then the
 * function returns the variable's name, and the option that was probably meant, or NULL. A name
 * that is no word does not count as a mistake. */
bool hdi_option_is_unknown(const char *variable, char name[HDI_OPTION_NAME], const hdi_option_row **meant);

/* Writes the line about variables HEDDLE_... of an environment that are no options. Returns its
 * length; 0: there are no such variables. */
size_t hdi_option_unknown_variables(char **environment, char *out, size_t room);

/* Writes the line of hdi_option_unknown_variables for this process's environment to stderr, once.
 * Writes nothing if the environment belongs to another user (AT_SECURE). */
void hdi_option_check_environment(void);

#endif
