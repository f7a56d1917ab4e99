/* debug.h - what the tests of the option memory_debug share: kernels that read and write by address, figures and reports, and whether a
 * message was left alone.
 *
 * Threads: any. Locks: none.
 */
#ifndef CONFORMANCE_DEBUG_H
#define CONFORMANCE_DEBUG_H

#include "support/json.h"
#include "workers.h"

#define DEBUG "memory_debug=on"

enum { fresh_word = 0x7ff7fff7, freed_word = (int)0xdddddddd };

/* Reads and writes by address: what a stale pointer does. */
static const char source[] = "#include <heddle/kernel.h>\n"
                             "HD_KERNEL(peek, HD_OUT(uint32_t, out), HD_VALUE(uint64_t, address))\n"
                             "{\n"
                             "    out[0] = *(volatile uint32_t *)(uintptr_t)address;\n"
                             "}\n"
                             "HD_KERNEL(poke, HD_INOUT(uint32_t, y), HD_VALUE(uint64_t, address), HD_VALUE(uint32_t, "
                             "value))\n"
                             "{\n"
                             "    y[0] = value;\n"
                             "    *(volatile uint8_t *)(uintptr_t)address = (uint8_t)value;\n"
                             "}\n";

typedef struct kernels {
    hd_kernel *peek, *poke; /* NULL: there is no compiler */
} kernels;

CONF_UNUSED static kernels load(hd_runtime *runtime)
{
    static uint8_t *image;
    static size_t size;
    kernels k = {NULL, NULL};
    if (image == NULL) {
        image = conf_kernel_file(source, &size);
    }
    if (image != NULL) {
        hd_module *module = NULL;
        CONF_OK(hd_module_load(runtime, image, size, &module));
        CONF_OK(hd_kernel_get(module, "peek", &k.peek));
        CONF_OK(hd_kernel_get(module, "poke", &k.poke));
    }
    return k;
}

#define NEED_KERNELS(runtime, k)                                                                                       \
    do {                                                                                                               \
        if ((k).peek == NULL) {                                                                                        \
            conf_close(runtime);                                                                                       \
            skip();                                                                                                    \
        }                                                                                                              \
    } while (0)

CONF_UNUSED static uint32_t peek(hd_lane *lane, kernels k, hd_buffer *out, uint64_t address)
{
    uint32_t word = 0;
    hd_arg args[] = {hd_out(out), hd_u64(address)};
    CONF_OK(hd_launch(lane, k.peek, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 2, NULL));
    CONF_OK(hd_read(out, 0, &word, 4));
    return word;
}

/* One byte, as part of an operation on `y`. */
CONF_UNUSED static void poke(hd_lane *lane, kernels k, hd_buffer *y, uint64_t address, uint32_t value)
{
    hd_arg args[] = {hd_inout(y), hd_u64(address), hd_u32(value)};
    CONF_OK(hd_launch(lane, k.poke, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 3, NULL));
}

CONF_UNUSED static hd_memory_stats stats_of(hd_runtime *runtime, int device)
{
    hd_memory_stats s = {.size = sizeof s};
    CONF_OK(hd_memory_get_stats(runtime, device, &s));
    return s;
}

CONF_UNUSED static char *json_of(hd_runtime *runtime)
{
    size_t needed = 0;
    CONF_OK(hd_memory_report(runtime, HD_REPORT_JSON, NULL, 0, &needed));
    char *text = conf_memory(needed + 512);
    CONF_OK(hd_memory_report(runtime, HD_REPORT_JSON, text, needed + 512, &needed));
    CONF_TRUE(json_is_document(text));
    return text;
}

/* Puts a message of its own there, to see whether it stays. */
CONF_UNUSED static void leave_message(void)
{
    CONF_FAILS(hd_memory_report(NULL, HD_REPORT_TEXT, NULL, 0, NULL), HD_ERROR_HANDLE);
}

CONF_UNUSED static bool message_is_left(void)
{
    return strstr(hd_message(), "hd_memory_report") != NULL;
}

CONF_UNUSED static hd_buffer *labelled(hd_lane *lane, size_t bytes, const char *label)
{
    hd_buffer *b = NULL;
    hd_alloc_options options = {.size = sizeof options, .label = label};
    CONF_OK(hd_alloc_with(lane, bytes, &options, &b));
    return b;
}

#endif
