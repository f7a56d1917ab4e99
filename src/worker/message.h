/* message.h - the shapes of the messages between a device's worker process and the application.
 *
 * A request is a header and the payload of its kind. Its reply is a header with the kind |
 * HDI_MESSAGE_REPLY and the same serial.
 * The kind determines the size of a message, so a receiver checks the size before it looks inside.
 * Messages are plain data without pointers. Both ends are built from this file, and HELLO and
 * DISCOVER compare HDI_MESSAGE_PROTOCOL.
 *
 * Threads: any; a message belongs to the thread that fills it in. Locks: none.
 * Always: after hdi_message_check returned GOOD, every string inside is terminated, without control
 * characters for a terminal. A welcome that reports a failure has an hd_status and a text. Every
 * count is within its array. The number of descriptors matches the kind. Trust nothing else about a
 * message.
 */
#ifndef HDI_WORKER_MESSAGE_H
#define HDI_WORKER_MESSAGE_H

#include <stddef.h>
#include <stdint.h>
#include "engine/port.h"

#define HDI_MESSAGE_MAGIC 0x57444448u /* "HDDW" */
/* raise this number with every change of this file or of its includes */
#define HDI_MESSAGE_PROTOCOL 6u
#define HDI_MESSAGE_REPLY 0x100u

#define HDI_MESSAGE_DEVICES 32
#define HDI_MESSAGE_SETTINGS_BYTES 16384
#define HDI_MESSAGE_VERSION_BYTES 64
#define HDI_MESSAGE_TEXT_BYTES 512

/* Never change a number once it is in use. */
enum {
    HDI_MESSAGE_FACTS = 1,
    HDI_MESSAGE_MEMORY_FREE = 2,
    HDI_MESSAGE_LANE = 3,
    HDI_MESSAGE_RESERVE = 4,
    HDI_MESSAGE_UNRESERVE = 5,
    HDI_MESSAGE_MAP = 6,
    HDI_MESSAGE_UNMAP = 7,
    HDI_MESSAGE_EXPORT = 8, /* a successful reply carries a descriptor of the memory */
    HDI_MESSAGE_IMPORT = 9, /* carries a descriptor of the memory */
    /* carries a descriptor of the file whose first bytes are mapped at `at` and pinned */
    HDI_MESSAGE_PIN = 10,
    HDI_MESSAGE_UNPIN = 11,
    HDI_MESSAGE_LOAD = 12, /* carries a descriptor of the file with the code */
    HDI_MESSAGE_UNLOAD = 13,
    HDI_MESSAGE_KERNEL = 14,
    HDI_MESSAGE_KERNEL_SHARED = 15,
    HDI_MESSAGE_BLAS = 16,
    HDI_MESSAGE_GLOBAL = 17,
    HDI_MESSAGE_MAP_PIECE = 18,
    HDI_MESSAGE_ACTIVITIES = 19,
    HDI_MESSAGE_MAP_EACH = 20,
    HDI_MESSAGE_MOVE = 21,
    /* between the worker's main program and its parent process; hdi_serve refuses them */
    HDI_MESSAGE_DISCOVER = 32,
    /* carries descriptors of all channels' files, one per device of the runtime, in order */
    HDI_MESSAGE_HELLO = 33,
    HDI_MESSAGE_KINDS = 34
};

typedef struct hdi_message_header {
    uint32_t magic; /* HDI_MESSAGE_MAGIC */
    uint32_t kind;
    uint64_t serial; /* the number of the request, counted by the sender; a reply repeats it */
    int32_t code;    /* reply: hdi_answer.code; request: 0 */
    uint32_t unused;
    char call[40]; /* reply: hdi_answer.call; request: "" */
} hdi_message_header;

/* ---- requests; kinds that are not listed carry no payload ---- */

typedef struct hdi_message_lane {
    uint32_t number, sticky_failure;
} hdi_message_lane;

typedef struct hdi_message_reserve {
    uint64_t wanted, bytes;
} hdi_message_reserve;

/* MAP_EACH, MOVE */
typedef struct hdi_message_mappings {
    uint64_t at, bytes;
    uint64_t each, to; /* each: for MAP_EACH; to: for MOVE */
} hdi_message_mappings;

/* UNRESERVE, MAP, MAP_PIECE, UNMAP, EXPORT, IMPORT, PIN, UNPIN */
typedef struct hdi_message_range {
    uint64_t at, bytes;
} hdi_message_range;

typedef struct hdi_message_load {
    uint64_t offset, size; /* in the file */
} hdi_message_load;

typedef struct hdi_message_kernel {
    uint64_t module;
    uint32_t number, params; /* 1: also return the parameters, else 0 */
    char name[HDI_KERNEL_SYMBOL_BYTES];
} hdi_message_kernel;

typedef struct hdi_message_kernel_shared {
    uint32_t number, bytes;
} hdi_message_kernel_shared;

typedef struct hdi_message_global {
    uint64_t module;
    char name[HDI_KERNEL_SYMBOL_BYTES];
} hdi_message_global;

typedef struct hdi_message_blas {
    uint32_t lane, unused;
    uint64_t workspace, bytes;
} hdi_message_blas;

typedef struct hdi_message_activities {
    uint32_t on, unused;
} hdi_message_activities;

typedef struct hdi_message_discover {
    uint32_t protocol, unused;
    /* as for hdi_options_parse: name=value, all options */
    char settings[HDI_MESSAGE_SETTINGS_BYTES];
} hdi_message_discover;

typedef struct hdi_message_hello {
    uint32_t protocol;
    uint32_t index;     /* the index of the worker's device in the runtime, below n_devices */
    uint32_t n_devices; /* devices of the runtime, 1..HDI_MESSAGE_DEVICES */
    uint32_t lane_slots;
    int32_t ordinals[HDI_MESSAGE_DEVICES];       /* in the driver */
    uint64_t channel_bytes[HDI_MESSAGE_DEVICES]; /* size of each channel's file */
    char version[HDI_MESSAGE_VERSION_BYTES];     /* of the library */
    char settings[HDI_MESSAGE_SETTINGS_BYTES];   /* as in a DISCOVER */
} hdi_message_hello;

/* ---- replies; kinds that are not listed carry no payload. Without success a payload is zeros,
 * unless a comment states otherwise ---- */

/* MEMORY_FREE: bytes. RESERVE, PIN: an address. LOAD: the module's number. */
typedef struct hdi_message_value {
    uint64_t value;
} hdi_message_value;

typedef struct hdi_message_loaded {
    uint64_t module;
    char log[HDI_CODE_LOG_BYTES]; /* also without success */
} hdi_message_loaded;

/* DISCOVER and HELLO; a DISCOVER leaves `facts` zero */
typedef struct hdi_message_welcome {
    int32_t status; /* hd_status; if it is not HD_OK, only `text` counts */
    int32_t driver_version, device_count;
    uint32_t unused;
    char provider[16];
    char text[HDI_MESSAGE_TEXT_BYTES];
    hdi_facts facts;
} hdi_message_welcome;

typedef union hdi_message_payload {
    hdi_message_lane lane;
    hdi_message_reserve reserve;
    hdi_message_range range;
    hdi_message_mappings mappings;
    hdi_message_load load;
    hdi_message_kernel kernel;
    hdi_message_kernel_shared kernel_shared;
    hdi_message_global global;
    hdi_message_blas blas;
    hdi_message_activities activities;
    /* UNLOAD: the module's number; also in replies, see hdi_message_value */
    hdi_message_value value;
    hdi_message_discover discover;
    hdi_message_hello hello;
    hdi_facts facts;
    hdi_message_loaded loaded;
    hdi_kernel_facts kernel_facts;
    hdi_global_place global_place;
    hdi_blas_facts blas_facts;
    hdi_activities_facts activities_facts;
    hdi_message_welcome welcome;
} hdi_message_payload;

typedef struct hdi_message {
    hdi_message_header header;
    hdi_message_payload payload;
} hdi_message;

typedef enum hdi_message_state {
    HDI_MESSAGE_GOOD,
    HDI_MESSAGE_BAD,    /* with the library's header, but not in the shape of its kind */
    HDI_MESSAGE_FOREIGN /* not a message of the library */
} hdi_message_state;

/* Bytes of a whole message of this kind; 0 for unknown kinds. */
size_t hdi_message_bytes(uint32_t kind);

/* Makes the header, and a payload of zeros. A message of an unknown kind gets no payload. */
void hdi_message_begin(hdi_message *message, uint32_t kind, uint64_t serial);

/* Puts an answer into a reply's header. */
void hdi_message_answer(hdi_message *message, hdi_answer answer);

/* Checks a received message of `bytes` bytes, with that number of descriptors. Also terminates
 * every string in it. */
hdi_message_state hdi_message_check(hdi_message *message, size_t bytes, int n_descriptors);

#endif
