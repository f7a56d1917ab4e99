/* fuzz.h - what fuzz targets share: inputs taken apart, copies that end where their memory ends, checks, files for what reads files.
 *
 * A target is a fuzz_NAME.c with LLVMFuzzerTestOneInput. It checks properties, not only that nothing crashes. libFuzzer drives it, or
 * replay.c does with the inputs that are kept.
 * Threads: one. Locks: none.
 * Always: an input leaves nothing behind that the next one could see.
 */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/status.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes);

/* The condition holds for every input; else the program ends with where and what. */
#define fuzz_check(condition) ((condition) ? (void)0 : fuzz_failed_(#condition, __FILE__, __LINE__))
void fuzz_failed_(const char *condition, const char *file, int line) __attribute__((noreturn));

/* A failure has one of these statuses and a message of one line. */
#define fuzz_check_failure(status, ...) fuzz_check(fuzz_is_failure_((status), (const hd_status[]){__VA_ARGS__, HD_OK}))
bool fuzz_is_failure_(hd_status status, const hd_status *allowed);

/* A text has an end within its room, and nothing in it that a terminal could take for more than text. */
bool fuzz_is_text(const char *text, size_t room);
/* The same of all its bytes, where lines may end. */
bool fuzz_is_print(const char *text, size_t length);

/* What is left of an input. Behind its end it goes on with zeros. */
typedef struct fuzz_input {
    const uint8_t *at;
    size_t left;
} fuzz_input;

uint64_t fuzz_take(fuzz_input *in, size_t width); /* a number of 1 to 8 bytes, little-endian */
/* A piece of up to `most` bytes, which stay the input's. */
const uint8_t *fuzz_take_piece(fuzz_input *in, size_t most, size_t *n);

/* Copies in memory that is just as long; to be freed. */
void *fuzz_copy(const void *bytes, size_t n);
char *fuzz_text(const void *bytes, size_t n); /* with a zero at its end */

/* A folder of this process under TMPDIR; gone when it ends in order. */
const char *fuzz_folder(void);
/* Replaces a file there, with the folders above it. */
void fuzz_write(const char *name, const void *bytes, size_t n);

/* The lowest number that a descriptor of this process would get: one that is left open shows. */
int fuzz_lowest_descriptor(void);

#endif
