/* command.h - what stands in a lane's ring: commands in 64-byte slots.
 *
 * A position counts slots since the lane was made and never goes back; slot number = position modulo the ring's size. A ticket is the position
 * behind its command. Long argument blocks continue in the following slots; a command never wraps around the ring's end (a
 * SKIP fills the gap). No pointers of the application: a kernel is a number in the runtime's table, memory is a device
 * address, a lane is a number, so a ring means the same to an engine in another process.
 */
#ifndef HDI_ENGINE_COMMAND_H
#define HDI_ENGINE_COMMAND_H

#include <stdint.h>

#define HDI_SLOT_BYTES 64
#define HDI_ARGUMENT_BYTES_MAX 4096
#define HDI_COMMAND_SLOTS_MAX (1 + HDI_ARGUMENT_BYTES_MAX / HDI_SLOT_BYTES)

enum {
    HDI_OP_SKIP = 1, /* nothing; fills the ring up to its end */
    HDI_OP_WAIT,     /* the lane goes on when another lane has finished a position */
    HDI_OP_LAUNCH,
    HDI_OP_COPY,
    HDI_OP_FILL,
    HDI_OP_RESUME    /* a failed lane accepts work again */
};

enum {
    HDI_COPY_TO_DEVICE = 1, /* from host memory */
    HDI_COPY_TO_HOST,
    HDI_COPY_ON_DEVICE,     /* both sides reachable by the lane's device */
    HDI_COPY_HOST           /* host to host */
};

typedef union hdi_command {
    struct {
        uint8_t op;
        uint8_t kind;   /* HDI_COPY_* */
        uint16_t slots; /* of the whole command */
        uint32_t kernel;
        union {
            struct {
                uint32_t grid[3];
                uint16_t block[3];
                uint16_t argument_bytes;
                uint32_t shared_bytes;
                unsigned char arguments[32]; /* goes on in the following slots */
            } launch;
            struct {
                uint64_t dst, src, bytes;
            } copy;
            struct {
                uint64_t dst, words;
                uint32_t pattern;
            } fill;
            struct {
                uint64_t position; /* of the other lane */
                uint64_t source;   /* position whose result is read: when it failed this lane's command fails; 0: none */
                uint32_t lane;     /* global number */
            } wait;
        } u;
    };
    unsigned char bytes[HDI_SLOT_BYTES];
} hdi_command;

_Static_assert(sizeof(hdi_command) == HDI_SLOT_BYTES, "a command's first part is one slot");

#endif
