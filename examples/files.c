/* files.c - a file goes through a device, chunk by chunk. Claims read it, and host calls write it,
 * with several chunks on the way.
 *
 * usage: files KERNEL_FILE [FROM TO] (examples/kernels/files.c, compiled by `heddle cc`)
 *
 * Each chunk on the way occupies a slot, which is a pinned buffer and one of the device. A claim
 * gives the pinned buffer to the program, which reads the chunk into it and ends the claim. Before
 * that, it submits all later operations: two copies, the kernel between them, and a host call that
 * writes the chunk. The next chunk of a slot waits for that call, since both use the same bytes. A
 * read that fails ends its claim with a failure. The later operations fail with it: that chunk is
 * not written, and its ticket gives the reason. Without FROM and TO the program sends a file of its
 * own there and back, and checks both results. */
#include <heddle.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 20, SLOTS = 4, CHUNKS_MOST = 1 << 16, CHECKED = 20 * CHUNK + 12345 };
static const uint64_t KEY = 0x9e3779b97f4a7c15u;

typedef struct slot {
    hd_buffer *pinned, *device;
} slot;

/* Passed to a host call: it stays until the call ends. */
typedef struct chunk {
    int to;
    off_t offset;
    size_t bytes;
    hd_ticket written;
} chunk;

static hd_runtime *runtime;
static hd_lane *lane;
static hd_kernel *scramble;
static slot slots[SLOTS];
static chunk chunks[CHUNKS_MOST];

static void must(hd_status status)
{
    if (status != HD_OK) {
        fprintf(stderr, "files: %s\n", hd_message());
        exit(1);
    }
}

static hd_status read_all(int from, char *bytes, size_t n, off_t offset)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(from, bytes + done, n - done, offset + (off_t)done);
        if (got <= 0) {
            return HD_ERROR_SYSTEM;
        }
        done += (size_t)got;
    }
    return HD_OK;
}

/* A host call: `pointers` points to the chunk's bytes, which nothing else changes now. */
static hd_status write_chunk(void *const *pointers, void *context)
{
    const chunk *c = context;
    for (size_t done = 0; done < c->bytes;) {
        const ssize_t put = pwrite(c->to, (const char *)pointers[0] + done, c->bytes - done, c->offset + (off_t)done);
        if (put <= 0) {
            return HD_ERROR_SYSTEM;
        }
        done += (size_t)put;
    }
    return HD_OK;
}

/* Submits all work on a chunk, then reads it. Waits until the chunk before it in the slot is
 * written. */
static void start(const slot *s, chunk *c, int from)
{
    const size_t words = (c->bytes + 7) / 8;
    const hd_arg into = hd_out_range(s->pinned, 0, words * 8), out_of = hd_in_range(s->pinned, 0, c->bytes);
    const hd_arg args[] = {hd_inout_range(s->device, 0, words * 8), hd_u64((uint64_t)c->offset / 8), hd_u64(words),
                           hd_u64(KEY)};
    hd_claim *claim;
    void *bytes;
    must(hd_claim_begin(runtime, &into, 1, &claim));
    must(hd_copy(s->device, 0, s->pinned, 0, words * 8, NULL));
    must(hd_launch(lane, scramble, (hd_dims){.x = (uint32_t)(words + 255) / 256}, (hd_dims){.x = 256}, 0, args, 4,
                   NULL));
    must(hd_copy(s->pinned, 0, s->device, 0, words * 8, NULL));
    must(hd_launch_host(runtime, write_chunk, c, &out_of, 1, &c->written));
    must(hd_claim_wait(claim, HD_FOREVER));
    must(hd_claim_get_pointer(claim, 0, &bytes));
    memset((char *)bytes + words * 8 - 8, 0, 8); /* the last word beyond the file */
    must(hd_claim_end(claim, read_all(from, bytes, c->bytes, c->offset)));
}

static void run(int from, int to)
{
    const off_t size = lseek(from, 0, SEEK_END);
    const int n = (int)((size + CHUNK - 1) / CHUNK);
    if (size < 0 || n > CHUNKS_MOST) {
        fprintf(stderr, "files: the file has no size, or more than %d bytes times %d\n", CHUNK, CHUNKS_MOST);
        exit(1);
    }
    for (int i = 0; i < n; i++) {
        const off_t offset = (off_t)i * CHUNK, left = size - offset;
        chunks[i] = (chunk){to, offset, left < CHUNK ? (size_t)left : CHUNK, {NULL, 0}};
        start(&slots[i % SLOTS], &chunks[i], from);
    }
    for (int i = 0; i < n; i++) {
        must(hd_wait(chunks[i].written, HD_FOREVER));
    }
}

/* True if a file contains these bytes, and no more. */
static bool has(FILE *file, const char *wanted)
{
    static char found[CHECKED];
    return lseek(fileno(file), 0, SEEK_END) == CHECKED && read_all(fileno(file), found, CHECKED, 0) == HD_OK &&
           memcmp(found, wanted, CHECKED) == 0;
}

static bool check(void)
{
    static union {
        uint64_t words[CHECKED / 8 + 1];
        char bytes[CHECKED];
    } content;
    FILE *first = tmpfile(), *scrambled = tmpfile(), *again = tmpfile();
    if (first == NULL || scrambled == NULL || again == NULL) {
        return false;
    }
    for (size_t i = 0; i < CHECKED; i++) {
        content.bytes[i] = (char)(i * i >> 7);
    }
    if (fwrite(content.bytes, 1, CHECKED, first) != CHECKED || fflush(first) != 0) {
        return false;
    }
    run(fileno(first), fileno(scrambled));
    run(fileno(scrambled), fileno(again));
    const bool back = has(again, content.bytes);
    for (uint64_t i = 0; i <= CHECKED / 8; i++) {
        content.words[i] ^= KEY * (2 * i + 1);
    }
    const bool there = has(scrambled, content.bytes);
    printf("%d bytes in chunks of %d, %d at a time: %s there, %s back\n", CHECKED, CHUNK, SLOTS,
           there ? "right" : "WRONG", back ? "right" : "WRONG");
    return there && back;
}

static void open_all(const char *kernel_file)
{
    hd_module *module;
    must(hd_open(NULL, &runtime));
    must(hd_lane_get_default(runtime, 0, &lane));
    must(hd_module_load_file(runtime, kernel_file, &module));
    must(hd_kernel_get(module, "scramble", &scramble));
    for (slot *s = slots; s < slots + SLOTS; s++) {
        must(hd_alloc_host(runtime, CHUNK, &s->pinned));
        must(hd_alloc(lane, CHUNK, &s->device));
    }
}

int main(int argc, char **argv)
{
    bool good = true;
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: files KERNEL_FILE [FROM TO]\n");
        return 2;
    }
    open_all(argv[1]);
    if (argc == 2) {
        good = check();
    } else {
        FILE *from = fopen(argv[2], "rb"), *to = fopen(argv[3], "wb");
        good = from != NULL && to != NULL;
        if (good) {
            run(fileno(from), fileno(to));
        } else {
            perror("files");
        }
    }
    must(hd_close(runtime));
    return !good;
}
