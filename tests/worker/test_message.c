/* test_message.c - the shape of messages: sizes, counts of descriptors, ends of strings, counts
 * inside, and foreign messages.
 *
 * Promise: A message of a wrong shape is refused.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include "worker/message.h"
#include "process/wire.h"

/* Every kind of message, with the descriptors of its request. */
static const struct {
    uint32_t kind;
    int descriptors;
} all[] = {
    {HDI_MESSAGE_FACTS, 0},         {HDI_MESSAGE_MEMORY_FREE, 0}, {HDI_MESSAGE_LANE, 0},     {HDI_MESSAGE_RESERVE, 0},
    {HDI_MESSAGE_UNRESERVE, 0},     {HDI_MESSAGE_MAP, 0},         {HDI_MESSAGE_UNMAP, 0},    {HDI_MESSAGE_EXPORT, 0},
    {HDI_MESSAGE_IMPORT, 1},        {HDI_MESSAGE_PIN, 1},         {HDI_MESSAGE_UNPIN, 0},    {HDI_MESSAGE_LOAD, 1},
    {HDI_MESSAGE_UNLOAD, 0},        {HDI_MESSAGE_KERNEL, 0},      {HDI_MESSAGE_DISCOVER, 0}, {HDI_MESSAGE_HELLO, 3},
    {HDI_MESSAGE_KERNEL_SHARED, 0}, {HDI_MESSAGE_BLAS, 0},        {HDI_MESSAGE_GLOBAL, 0},   {HDI_MESSAGE_MAP_PIECE, 0},
    {HDI_MESSAGE_ACTIVITIES, 0},    {HDI_MESSAGE_MAP_EACH, 0},    {HDI_MESSAGE_MOVE, 0},
};
#define N (sizeof all / sizeof all[0])

static hdi_message m;

/* Makes a message as received, with every byte of the payload set. */
static size_t make(uint32_t kind, int filler)
{
    hdi_message_begin(&m, kind, 7);
    size_t bytes = hdi_message_bytes(kind);
    memset(&m.payload, filler, bytes - sizeof m.header);
    if (kind == HDI_MESSAGE_HELLO) {
        m.payload.hello.n_devices = 3;
        m.payload.hello.index = 2;
    }
    if (kind == (HDI_MESSAGE_KERNEL | HDI_MESSAGE_REPLY)) {
        m.payload.kernel_facts.n_params = UINT32_MAX;
    }
    if (kind == (HDI_MESSAGE_DISCOVER | HDI_MESSAGE_REPLY) || kind == (HDI_MESSAGE_HELLO | HDI_MESSAGE_REPLY)) {
        m.payload.welcome.status = filler ? HD_ERROR_DRIVER : HD_OK;
    }
    return bytes;
}

static void every_kind_has_one_shape(void **state)
{
    (void)state;
    for (size_t i = 0; i < N; i++) {
        for (uint32_t reply = 0; reply <= HDI_MESSAGE_REPLY; reply += HDI_MESSAGE_REPLY) {
            uint32_t kind = all[i].kind | reply;
            size_t bytes = make(kind, 0);
            assert_in_range(bytes, sizeof m.header, HDI_WIRE_BYTES);
            m.header.code = reply ? 1 : 0;
            int descriptors = reply ? 0 : all[i].descriptors;
            assert_int_equal(hdi_message_check(&m, bytes, descriptors), HDI_MESSAGE_GOOD);
            assert_int_equal(hdi_message_check(&m, bytes - 1, descriptors),
                             bytes == sizeof m.header ? HDI_MESSAGE_FOREIGN : HDI_MESSAGE_BAD);
            assert_int_equal(hdi_message_check(&m, bytes + 1, descriptors), HDI_MESSAGE_BAD);
            assert_int_equal(hdi_message_check(&m, bytes, descriptors + 1), HDI_MESSAGE_BAD);
            if (descriptors > 0) {
                assert_int_equal(hdi_message_check(&m, bytes, descriptors - 1), HDI_MESSAGE_BAD);
            }
        }
    }
}

static void what_is_not_ours_is_foreign(void **state)
{
    (void)state;
    size_t bytes = make(HDI_MESSAGE_MAP, 0);
    for (size_t n = 0; n < sizeof m.header; n++) {
        assert_int_equal(hdi_message_check(&m, n, 0), HDI_MESSAGE_FOREIGN);
    }
    m.header.magic++;
    assert_int_equal(hdi_message_check(&m, bytes, 0), HDI_MESSAGE_FOREIGN);
    const uint32_t unknown[] = {0,     22,        31, HDI_MESSAGE_KINDS, HDI_MESSAGE_REPLY, HDI_MESSAGE_REPLY | 22,
                                0x200, UINT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        assert_int_equal(hdi_message_bytes(unknown[i]), 0);
        hdi_message_begin(&m, unknown[i], 1);
        assert_int_equal(hdi_message_check(&m, sizeof m.header, 0), HDI_MESSAGE_BAD);
    }
}

#define ended(text) assert_non_null(memchr((text), '\0', sizeof(text)))

static void strings_get_an_end(void **state)
{
    (void)state;
    size_t bytes = make(HDI_MESSAGE_KERNEL, 'x');
    memset(m.header.call, 'x', sizeof m.header.call);
    assert_int_equal(hdi_message_check(&m, bytes, 0), HDI_MESSAGE_GOOD);
    ended(m.header.call);
    ended(m.payload.kernel.name);
    bytes = make(HDI_MESSAGE_DISCOVER, 'x');
    assert_int_equal(hdi_message_check(&m, bytes, 0), HDI_MESSAGE_GOOD);
    ended(m.payload.discover.settings);
    bytes = make(HDI_MESSAGE_HELLO, 'x');
    assert_int_equal(hdi_message_check(&m, bytes, 3), HDI_MESSAGE_GOOD);
    ended(m.payload.hello.settings);
    ended(m.payload.hello.version);
    bytes = make(HDI_MESSAGE_FACTS | HDI_MESSAGE_REPLY, 'x');
    assert_int_equal(hdi_message_check(&m, bytes, 0), HDI_MESSAGE_GOOD);
    ended(m.payload.facts.name);
    ended(m.payload.facts.bus_id);
    bytes = make(HDI_MESSAGE_LOAD | HDI_MESSAGE_REPLY, 'x');
    assert_int_equal(hdi_message_check(&m, bytes, 0), HDI_MESSAGE_GOOD);
    ended(m.payload.loaded.log);
    for (uint32_t kind = HDI_MESSAGE_DISCOVER; kind <= HDI_MESSAGE_HELLO; kind++) {
        bytes = make(kind | HDI_MESSAGE_REPLY, 'x');
        assert_int_equal(hdi_message_check(&m, bytes, 0), HDI_MESSAGE_GOOD);
        ended(m.payload.welcome.provider);
        ended(m.payload.welcome.text);
        ended(m.payload.welcome.facts.name);
        ended(m.payload.welcome.facts.bus_id);
    }
}

static void counts_are_within_their_arrays(void **state)
{
    (void)state;
    size_t bytes = make(HDI_MESSAGE_HELLO, 0);
    hdi_message_hello *h = &m.payload.hello;
    h->index = 3;
    assert_int_equal(hdi_message_check(&m, bytes, 3), HDI_MESSAGE_BAD);
    h->index = 0;
    h->n_devices = 0;
    assert_int_equal(hdi_message_check(&m, bytes, 0), HDI_MESSAGE_BAD);
    h->n_devices = HDI_MESSAGE_DEVICES;
    assert_int_equal(hdi_message_check(&m, bytes, HDI_MESSAGE_DEVICES), HDI_MESSAGE_GOOD);
    h->n_devices = HDI_MESSAGE_DEVICES + 1;
    assert_int_equal(hdi_message_check(&m, bytes, HDI_MESSAGE_DEVICES + 1), HDI_MESSAGE_BAD);

    bytes = make(HDI_MESSAGE_KERNEL | HDI_MESSAGE_REPLY, 0);
    m.payload.kernel_facts.n_params = HDI_FUNCTION_PARAMS_MAX;
    assert_int_equal(hdi_message_check(&m, bytes, 0), HDI_MESSAGE_GOOD);
    m.payload.kernel_facts.n_params = HDI_FUNCTION_PARAMS_MAX + 1;
    assert_int_equal(hdi_message_check(&m, bytes, 0), HDI_MESSAGE_BAD);
}

static void replies_say_what_somebody_answered(void **state)
{
    (void)state;
    size_t bytes = make(HDI_MESSAGE_MAP | HDI_MESSAGE_REPLY, 0);
    m.header.code = HDI_GONE_STUCK; /* a dead worker cannot report its end */
    assert_int_equal(hdi_message_check(&m, bytes, 0), HDI_MESSAGE_BAD);
    bytes = make(HDI_MESSAGE_EXPORT | HDI_MESSAGE_REPLY, 0);
    assert_int_equal(hdi_message_check(&m, bytes, 1), HDI_MESSAGE_GOOD);
    assert_int_equal(hdi_message_check(&m, bytes, 0), HDI_MESSAGE_BAD);
    m.header.code = 1;
    assert_int_equal(hdi_message_check(&m, bytes, 1), HDI_MESSAGE_BAD);

    hdi_message_answer(&m, (hdi_answer){700, "cuSomething"});
    assert_int_equal(m.header.code, 700);
    assert_string_equal(m.header.call, "cuSomething");
    hdi_message_answer(&m, (hdi_answer){0, NULL});
    assert_string_equal(m.header.call, "");
}

/* A worker's texts end in messages, and on terminals. */
static void words_are_words(void **state)
{
    (void)state;
    size_t bytes = make(HDI_MESSAGE_FACTS | HDI_MESSAGE_REPLY, 0);
    strcpy(m.payload.facts.name, "a\033[2Jb\nc\177\xc2\x9b\xc3\xa4");
    assert_int_equal(hdi_message_check(&m, bytes, 0), HDI_MESSAGE_GOOD);
    assert_string_equal(m.payload.facts.name, "a?[2Jb?c??\x9b\xc3\xa4");
    bytes = make(HDI_MESSAGE_LOAD | HDI_MESSAGE_REPLY, 0);
    strcpy(m.payload.loaded.log, "one\n\ttwo\r");
    assert_int_equal(hdi_message_check(&m, bytes, 0), HDI_MESSAGE_GOOD);
    assert_string_equal(m.payload.loaded.log, "one\n\ttwo?");
}

/* A failure to start states one of our statuses, and a text. A working worker reports devices. */
static void a_welcome_says_how_it_went(void **state)
{
    (void)state;
    static const struct {
        int status, devices;
        const char *text;
        hdi_message_state is;
    } table[] = {
        {HD_OK, 0, "", HDI_MESSAGE_GOOD},
        {HD_OK, -1, "", HDI_MESSAGE_BAD},
        {HD_ERROR_DRIVER, 0, "why", HDI_MESSAGE_GOOD},
        {HD_ERROR_DRIVER, 0, "", HDI_MESSAGE_BAD},
        {1, 1, "why", HDI_MESSAGE_BAD},
        {HD_ERROR_UNSUPPORTED - 1, 1, "why", HDI_MESSAGE_BAD},
        {INT32_MIN, 1, "why", HDI_MESSAGE_BAD},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        for (uint32_t kind = HDI_MESSAGE_DISCOVER; kind <= HDI_MESSAGE_HELLO; kind++) {
            size_t bytes = make(kind | HDI_MESSAGE_REPLY, 0);
            m.payload.welcome.status = table[i].status;
            m.payload.welcome.device_count = table[i].devices;
            strcpy(m.payload.welcome.text, table[i].text);
            assert_int_equal(hdi_message_check(&m, bytes, 0), table[i].is);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_has_one_shape),
        cmocka_unit_test(what_is_not_ours_is_foreign),
        cmocka_unit_test(strings_get_an_end),
        cmocka_unit_test(counts_are_within_their_arrays),
        cmocka_unit_test(replies_say_what_somebody_answered),
        cmocka_unit_test(words_are_words),
        cmocka_unit_test(a_welcome_says_how_it_went),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
