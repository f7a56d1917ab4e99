/* message.c - sizes of messages, and checks of received ones. Threads, locks and guarantees: see
 * message.h. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "process/wire.h"
#include "worker/message.h"

_Static_assert(sizeof(hdi_message_header) == 64, "no padding: it goes to another process");
_Static_assert(sizeof(hdi_message_kernel) == 16 + HDI_KERNEL_SYMBOL_BYTES, "likewise");
_Static_assert(sizeof(hdi_message) <= HDI_WIRE_BYTES, "a message is sent as one");
_Static_assert(HDI_MESSAGE_DEVICES <= HDI_WIRE_DESCRIPTORS, "all channels go with one HELLO");

#define ONE_PER_DEVICE (-1)

typedef struct shape {
    bool exists;
    uint16_t request, reply; /* bytes of the payloads */
    int8_t descriptors;      /* descriptors that come with the request */
} shape;

static const shape shapes[HDI_MESSAGE_KINDS] = {
    [HDI_MESSAGE_FACTS] = {true, 0, sizeof(hdi_facts), 0},
    [HDI_MESSAGE_MEMORY_FREE] = {true, 0, sizeof(hdi_message_value), 0},
    [HDI_MESSAGE_LANE] = {true, sizeof(hdi_message_lane), 0, 0},
    [HDI_MESSAGE_RESERVE] = {true, sizeof(hdi_message_reserve), sizeof(hdi_message_value), 0},
    [HDI_MESSAGE_UNRESERVE] = {true, sizeof(hdi_message_range), 0, 0},
    [HDI_MESSAGE_MAP] = {true, sizeof(hdi_message_range), 0, 0},
    [HDI_MESSAGE_MAP_EACH] = {true, sizeof(hdi_message_mappings), 0, 0},
    [HDI_MESSAGE_MOVE] = {true, sizeof(hdi_message_mappings), 0, 0},
    [HDI_MESSAGE_MAP_PIECE] = {true, sizeof(hdi_message_range), 0, 0},
    [HDI_MESSAGE_UNMAP] = {true, sizeof(hdi_message_range), 0, 0},
    [HDI_MESSAGE_EXPORT] = {true, sizeof(hdi_message_range), 0, 0},
    [HDI_MESSAGE_IMPORT] = {true, sizeof(hdi_message_range), 0, 1},
    [HDI_MESSAGE_PIN] = {true, sizeof(hdi_message_range), sizeof(hdi_message_value), 1},
    [HDI_MESSAGE_UNPIN] = {true, sizeof(hdi_message_range), 0, 0},
    [HDI_MESSAGE_LOAD] = {true, sizeof(hdi_message_load), sizeof(hdi_message_loaded), 1},
    [HDI_MESSAGE_UNLOAD] = {true, sizeof(hdi_message_value), 0, 0},
    [HDI_MESSAGE_KERNEL] = {true, sizeof(hdi_message_kernel), sizeof(hdi_kernel_facts), 0},
    [HDI_MESSAGE_KERNEL_SHARED] = {true, sizeof(hdi_message_kernel_shared), 0, 0},
    [HDI_MESSAGE_BLAS] = {true, sizeof(hdi_message_blas), sizeof(hdi_blas_facts), 0},
    [HDI_MESSAGE_ACTIVITIES] = {true, sizeof(hdi_message_activities), sizeof(hdi_activities_facts), 0},
    [HDI_MESSAGE_GLOBAL] = {true, sizeof(hdi_message_global), sizeof(hdi_global_place), 0},
    [HDI_MESSAGE_DISCOVER] = {true, sizeof(hdi_message_discover), sizeof(hdi_message_welcome), 0},
    [HDI_MESSAGE_HELLO] = {true, sizeof(hdi_message_hello), sizeof(hdi_message_welcome), ONE_PER_DEVICE},
};

static const shape *message_shape_of(uint32_t kind)
{
    uint32_t request = kind & ~HDI_MESSAGE_REPLY;
    return request < HDI_MESSAGE_KINDS && shapes[request].exists ? &shapes[request] : NULL;
}

size_t hdi_message_bytes(uint32_t kind)
{
    const shape *s = message_shape_of(kind);
    if (s == NULL) {
        return 0;
    }
    return sizeof(hdi_message_header) + (kind & HDI_MESSAGE_REPLY ? s->reply : s->request);
}

void hdi_message_begin(hdi_message *message, uint32_t kind, uint64_t serial)
{
    size_t bytes = hdi_message_bytes(kind);
    memset(message, 0, bytes != 0 ? bytes : sizeof message->header);
    message->header.magic = HDI_MESSAGE_MAGIC;
    message->header.kind = kind;
    message->header.serial = serial;
}

void hdi_message_answer(hdi_message *message, hdi_answer answer)
{
    message->header.code = answer.code;
    snprintf(message->header.call, sizeof message->header.call, "%s", answer.call != NULL ? answer.call : "");
}

/* Terminates a text and removes control characters; `lines`: the text may have several lines. */
static void message_end_text(char *text, size_t room, bool lines)
{
    text[room - 1] = 0;
    for (; *text; text++) {
        unsigned char c = (unsigned char)text[0], next = (unsigned char)text[1];
        if ((c < ' ' && !(lines && (c == '\n' || c == '\t'))) || c == 0x7f ||
            (c == 0xc2 && next >= 0x80 && next < 0xa0)) {
            *text = '?';
        }
    }
}

#define END(text) message_end_text((text), sizeof(text), false)
#define END_LINES(text) message_end_text((text), sizeof(text), true)

static void message_end_facts(hdi_facts *facts)
{
    END(facts->name);
    END(facts->bus_id);
}

/* True for a plausible report of a worker's start: success, or a failure with a reason. */
static bool message_welcome_is_good(const hdi_message_welcome *w)
{
    return w->status == HD_OK ? w->device_count >= 0
                              : w->status < 0 && w->status >= HD_ERROR_UNSUPPORTED && w->text[0] != 0;
}

static bool message_request_is_good(hdi_message_payload *p, uint32_t kind, const shape *s, int n_descriptors)
{
    if (kind == HDI_MESSAGE_KERNEL) {
        END(p->kernel.name);
    } else if (kind == HDI_MESSAGE_GLOBAL) {
        END(p->global.name);
    } else if (kind == HDI_MESSAGE_DISCOVER) {
        END(p->discover.settings);
    } else if (kind == HDI_MESSAGE_HELLO) {
        END(p->hello.version);
        END(p->hello.settings);
        return p->hello.n_devices <= HDI_MESSAGE_DEVICES && p->hello.index < p->hello.n_devices &&
               n_descriptors == (int)p->hello.n_devices;
    }
    return n_descriptors == s->descriptors;
}

static bool message_reply_is_good(hdi_message_payload *p, uint32_t kind, int code, int n_descriptors)
{
    if (kind == HDI_MESSAGE_FACTS) {
        message_end_facts(&p->facts);
    } else if (kind == HDI_MESSAGE_LOAD) {
        END_LINES(p->loaded.log);
    } else if (kind == HDI_MESSAGE_DISCOVER || kind == HDI_MESSAGE_HELLO) {
        END(p->welcome.provider);
        END(p->welcome.text);
        message_end_facts(&p->welcome.facts);
        if (!message_welcome_is_good(&p->welcome)) {
            return false;
        }
    } else if (kind == HDI_MESSAGE_BLAS) {
        END(p->blas_facts.name);
        END(p->blas_facts.why);
    } else if (kind == HDI_MESSAGE_ACTIVITIES) {
        END(p->activities_facts.why);
    } else if (kind == HDI_MESSAGE_KERNEL) {
        uint32_t n = p->kernel_facts.n_params;
        if (n > HDI_FUNCTION_PARAMS_MAX && n != UINT32_MAX) {
            return false;
        }
    }
    int expected = kind == HDI_MESSAGE_EXPORT && code == HDCU_SUCCESS ? 1 : 0;
    /* below 0: no answer, so no reply has such a code */
    return n_descriptors == expected && code >= 0;
}

hdi_message_state hdi_message_check(hdi_message *message, size_t bytes, int n_descriptors)
{
    hdi_message_header *header = &message->header;
    if (bytes < sizeof *header || header->magic != HDI_MESSAGE_MAGIC) {
        return HDI_MESSAGE_FOREIGN;
    }
    END(header->call);
    const shape *s = message_shape_of(header->kind);
    if (s == NULL || bytes != hdi_message_bytes(header->kind)) {
        return HDI_MESSAGE_BAD;
    }
    uint32_t kind = header->kind & ~HDI_MESSAGE_REPLY;
    bool good = header->kind & HDI_MESSAGE_REPLY
                    ? message_reply_is_good(&message->payload, kind, header->code, n_descriptors)
                    : message_request_is_good(&message->payload, kind, s, n_descriptors);
    return good ? HDI_MESSAGE_GOOD : HDI_MESSAGE_BAD;
}
