/* fuzz_messages.c - messages between the application and its workers, both ways. The worker answers
 * every request. The application treats each reply as a reply, or as the end of the line. Always:
 * neither side leaks a descriptor.
 *
 * Threads: one, which plays both sides: messages wait in the socket until the other side reads
 * them. So each run of an input is the same.
 * An input: a byte that chooses the side, then messages. A message is a kind, a byte of bits (how),
 * two bytes for the length of the payload, and the payload.
 */
#include "fuzz.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/wait.h"
#include "worker/fake_port.h"
#include "worker/message.h"
#include "worker/remote.h"
#include "process/wire.h"

enum { MESSAGES_MAX = 6, WINDOW = 1 << 18 };
enum { ANY_KIND = 1, OTHER_LENGTH = 2, OTHER_MAGIC = 4, OTHER_DESCRIPTORS = 8, WHOLE = 16, FAILS = 32 };

static fake_port fake;
static fake_things things;
static hdi_message m; /* 66 KB: too large for a stack */

/* Fills the payload from the input; with WHOLE, also the head. Ranges to map stay in a window that
 * nothing else uses. */
static void fill(fuzz_input *in, uint64_t how)
{
    size_t n;
    const uint8_t *piece = fuzz_take_piece(in, (size_t)fuzz_take(in, 2), &n);
    size_t from = how & WHOLE ? offsetof(hdi_message, header.serial) + sizeof m.header.serial : sizeof m.header;
    memcpy((char *)&m + from, piece, n < sizeof m - from ? n : sizeof m - from);
    if ((m.header.kind & ~HDI_MESSAGE_REPLY) == HDI_MESSAGE_PIN && !(m.header.kind & HDI_MESSAGE_REPLY)) {
        m.payload.range.at = (uintptr_t)things.base + m.payload.range.at % (WINDOW / 2);
        m.payload.range.bytes %= WINDOW / 2;
    }
    if (how & OTHER_MAGIC) {
        m.header.magic ^= 1u << n % 32;
    }
}

static size_t length_of(uint64_t how, fuzz_input *in)
{
    size_t bytes = hdi_message_bytes(m.header.kind);
    bytes = bytes != 0 ? bytes : sizeof m.header;
    return how & OTHER_LENGTH ? 1 + fuzz_take(in, 2) % sizeof m : bytes;
}

/* Sends the message with descriptors. Returns false if the socket is full or closed. */
static bool send_message(int socket, size_t bytes, uint64_t how, bool usual, fuzz_input *in)
{
    const int descriptors[] = {things.file.descriptor, fake.memory, socket};
    int n = how & OTHER_DESCRIPTORS ? (int)(fuzz_take(in, 1) % 4) : usual;
    return hdi_wire_send(socket, &m, bytes, descriptors, n, 0) == HDI_WIRE_OK;
}

/* ---- to the worker ---- */

static void check_replies(int socket, int sent)
{
    int n_descriptors, descriptors[2], replies = 0;
    size_t bytes;
    while (hdi_wire_receive(socket, &m, sizeof m, &bytes, descriptors, 2, &n_descriptors, 0) == HDI_WIRE_OK) {
        fuzz_check(bytes >= sizeof m.header && m.header.magic == HDI_MESSAGE_MAGIC &&
                   m.header.kind & HDI_MESSAGE_REPLY);
        size_t shape = hdi_message_bytes(m.header.kind);
        fuzz_check(bytes == (shape != 0 ? shape : sizeof m.header) && m.header.code >= 0);
        fuzz_check(shape == 0 || hdi_message_check(&m, bytes, n_descriptors) == HDI_MESSAGE_GOOD);
        hdi_wire_close(descriptors, n_descriptors);
        replies++;
    }
    fuzz_check(replies <= sent);
}

static void check_worker(fuzz_input *in)
{
    int ends[2], sent = 0;
    fuzz_check(hdi_wire_pair(ends) == HD_OK);
    for (bool more = true; more && in->left > 0 && sent < MESSAGES_MAX; sent += more) {
        uint64_t kind = fuzz_take(in, 1), how = fuzz_take(in, 1);
        int which = (int)(kind % FAKE_KINDS);
        hdi_message_begin(&m, how & ANY_KIND ? (uint32_t)kind : fake_kind(which), (uint64_t)sent);
        bool has_file = which == FAKE_IMPORT || which == FAKE_PIN || which == FAKE_LOAD;
        fill(in, how);
        fake_answer(&fake, how & FAILS ? HDCU_ERROR_OUT_OF_MEMORY : 0, "cuMemMap");
        more = send_message(ends[0], length_of(how, in), how, has_file, in);
    }
    shutdown(ends[0], SHUT_WR);
    int result = hdi_serve(ends[1], &fake.port);
    fuzz_check(result == 0 || result == -1);
    close(ends[1]);
    check_replies(ends[0], sent);
    close(ends[0]);
    munmap(things.base, WINDOW); /* pins that no message unpinned */
}

/* ---- to the application ---- */

static int broken_times;

static void note_broken(void *context, uint64_t connection, int code)
{
    (void)context;
    (void)connection;
    broken_times++;
    fuzz_check(code == HDI_GONE_UNANSWERED || code == HDI_GONE_CLOSED || code > 0);
}

/* Puts replies into the sockets of both lines. Returns their number, and the matching requests in
 * order. */
static int put_replies(fuzz_input *in, const int sockets[2], int *asked)
{
    uint64_t serials[2] = {0, 0};
    int n = 0;
    for (bool more = true; more && in->left > 0 && n < MESSAGES_MAX; n += more) {
        uint64_t kind = fuzz_take(in, 1), how = fuzz_take(in, 1);
        int which = (int)(kind % FAKE_KINDS), line = which >= FAKE_LOAD;
        uint32_t of = how & ANY_KIND ? (uint32_t)(kind >> 4) : fake_kind(which);
        hdi_message_begin(&m, of | HDI_MESSAGE_REPLY, ++serials[line]);
        fill(in, how);
        size_t bytes = length_of(how, in);
        bool has_memory = of == HDI_MESSAGE_EXPORT && m.header.code == 0;
        more = send_message(sockets[line], bytes, how, has_memory, in);
        asked[n] = which;
    }
    shutdown(sockets[0], SHUT_WR);
    shutdown(sockets[1], SHUT_WR);
    return n;
}

static void check_application(fuzz_input *in)
{
    int memory[2], code[2], asked[MESSAGES_MAX];
    fuzz_check(hdi_wire_pair(memory) == HD_OK && hdi_wire_pair(code) == HD_OK);
    hdi_port *port = hdi_remote_port_create(-1, note_broken, NULL);
    fuzz_check(port != NULL);
    broken_times = 0;
    hdi_remote_port_connect(port, memory[0], code[0]);
    const int sockets[2] = {memory[1], code[1]};
    int n = put_replies(in, sockets, asked);
    bool gone[2] = {false, false}; /* a broken line stays broken */
    for (int i = 0; i < n; i++) {
        bool *line = &gone[asked[i] >= FAKE_LOAD];
        hdi_answer answer = fake_ask(port, asked[i], &things);
        fuzz_check(answer.code >= 0 || answer.code == HDI_GONE_UNANSWERED || answer.code == HDI_GONE_CLOSED);
        fuzz_check(!*line || answer.code < 0);
        *line = answer.code < 0;
        fuzz_check(answer.call != NULL && fuzz_is_text(answer.call, 64));
    }
    fuzz_check(broken_times > 0 || !(gone[0] || gone[1]));
    hdi_remote_port_disconnect(port);
    hdi_remote_port_destroy(port);
    close(memory[1]);
    close(code[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (things.base == NULL) {
        fake_init(&fake);
        fake_things_make(&things);
    }
    int before = fuzz_lowest_descriptor();
    fuzz_input in = {input, bytes};
    if (fuzz_take(&in, 1) & 1) {
        check_worker(&in);
    } else {
        check_application(&in);
    }
    fuzz_check(fuzz_lowest_descriptor() == before);
    return 0;
}
