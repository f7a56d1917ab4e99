/* command.h - what stands in a lane's command ring: commands in 64-byte slots.
 *
 * A position counts slots since the lane was made and never goes back. The slot's number is the position modulo the
 * ring's size. A ticket is the position behind its command. Long argument blocks continue in the following slots. A
 * command never wraps around the ring's end: a SKIP fills the gap.
 *
 * Threads: submitters write commands under the device's order lock. The engine reads them.
 * Locks: that order lock.
 * Always: a ring holds no pointers of the application, so it means the same to an engine in another process. A kernel
 * is a number in the runtime's table, memory is a device address, a lane is a number.
 */
#ifndef HDI_ENGINE_COMMAND_H
#define HDI_ENGINE_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#define HDI_SLOT_BYTES 64
#define HDI_ARGUMENT_BYTES_MAX 4096
#define HDI_SOURCES_MOST 13 /* in one command */
#define HDI_COMMAND_SLOTS_MAX (1 + HDI_ARGUMENT_BYTES_MAX / HDI_SLOT_BYTES)

/* The one table of operations, which a ticket of the application can stand for: X(op, call, name, entries, rank).
 * - call: its name in issue.c, which has the driver call of each
 * - name: its name in messages
 * - entries: how many entries of the driver's queue it takes
 * - rank: its rank among the suspects of a loss, the likeliest first
 *
 * COPY_BOX copies rows at equal distances. MATMUL is a call of a library, which is few kernels. Its command is a
 * hdi_product (blas/blas.h), whose first bytes are those of a command. */
#define HDI_OP_MAP(X)                                                                                                  \
    X(LAUNCH, launch, "launch", 1, 0)                                                                                  \
    X(COPY, copy, "copy", 1, 2)                                                                                        \
    X(FILL, fill, "fill", 1, 2)                                                                                        \
    X(COPY_BOX, copy_box, "copy", 4, 2)                                                                                \
    X(MATMUL, matmul, "matrix product", 8, 1)

enum {
    HDI_OP_NONE, /* no command has it */
#define HDI_OP_OF_MAP(op, call, name, entries, rank) HDI_OP_##op,
    HDI_OP_MAP(HDI_OP_OF_MAP)
#undef HDI_OP_OF_MAP
        HDI_OPS,           /* what follows is between a lane and its engine, and is no operation */
    HDI_OP_SKIP = HDI_OPS, /* nothing; fills the ring up to its end */
    HDI_OP_WAIT,           /* the lane goes on when another lane has finished a position */
    HDI_OP_RESUME,         /* a failed lane accepts work again */
    HDI_OP_SOURCES         /* the next operation reads results of another lane; a WAIT before it gives the order */
};

enum {
    HDI_COPY_TO_DEVICE = 1, /* from host memory */
    HDI_COPY_TO_HOST,
    HDI_COPY_ON_DEVICE, /* both sides reachable by the lane's device */
    HDI_COPY_PEER,      /* likewise, and one of them another device's */
    HDI_COPY_HOST,      /* host to host */
    HDI_COPY_KIND = 255,
    /* A flag beside the kind: other lanes are going to wait for exactly this operation. The engine marks its end at
     * once, so that they need not wait for the end of a later one. */
    HDI_COPY_AWAITED = 256
};

/* A launch is packed so that a kernel of three buffers and three or four numbers needs one slot. */
typedef union hdi_command {
    /* The same first bytes in all. */
    struct {
        uint8_t op;
        uint8_t slots; /* of the whole command */
        union {
            uint16_t kernel; /* LAUNCH: number in the runtime's table */
            uint16_t kind;   /* COPY, COPY_BOX: HDI_COPY_*, with flags */
        };
    };
    struct {
        uint32_t first;
        uint32_t grid_x;
        uint16_t grid_y, grid_z;
        uint32_t block; /* hdi_block_pack */
        uint16_t argument_bytes;
        uint16_t shared_units; /* dynamic shared memory, in units of HDI_SHARED_UNIT */
        uint32_t reserved;
        unsigned char arguments[40]; /* goes on in the following slots */
    } launch;
    struct {
        uint32_t first;
        /* Not 0: a completion write follows it at once, since a thread will check how far the lane is. */
        uint32_t signalled;
        uint64_t dst, src, bytes;
    } copy;
    struct {
        uint32_t first, reserved;
        uint64_t dst, src;
        uint64_t dst_pitch, src_pitch; /* bytes from one row to the next */
        uint64_t row, rows;            /* bytes of a row, number of rows */
    } box;
    struct {
        uint32_t first;
        uint32_t pattern;
        uint64_t dst, words;
    } fill;
    struct {
        uint32_t first;
        uint32_t lane;     /* global number */
        uint64_t position; /* of that lane */
        uint64_t source;   /* position whose result is read: if it failed, this lane's command fails; 0: none */
    } wait;
    struct {
        uint32_t first;
        uint32_t lane;                         /* global number */
        uint64_t position;                     /* position whose result is read; the others are so much behind it: */
        uint32_t behind[HDI_SOURCES_MOST - 1]; /* 0: no further one */
    } sources;
    unsigned char bytes[HDI_SLOT_BYTES];
} hdi_command;

#define HDI_MATMUL_SLOTS 2

/* Whether it is an operation of the table. */
static inline bool hdi_op_is_work(unsigned op)
{
    return op - 1 < HDI_OPS - 1;
}

#define HDI_SHARED_UNIT 16

/* x and y up to 2047, z up to 1023, which is more than any device allows. */
static inline uint32_t hdi_block_pack(uint32_t x, uint32_t y, uint32_t z)
{
    return x | y << 11 | z << 22;
}
static inline uint32_t hdi_block_x(uint32_t block)
{
    return block & 2047;
}
static inline uint32_t hdi_block_y(uint32_t block)
{
    return block >> 11 & 2047;
}
static inline uint32_t hdi_block_z(uint32_t block)
{
    return block >> 22;
}

_Static_assert(sizeof(hdi_command) == HDI_SLOT_BYTES, "a command's first part is one slot");

#endif
