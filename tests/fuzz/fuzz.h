/* fuzz.h - shared by the fuzz targets: splitting inputs, copies that end with their memory, checks,
 * and files for parsers of files.
 *
 * A target is a fuzz_NAME.c with LLVMFuzzerTestOneInput. It checks properties, not only that
 * nothing crashes. libFuzzer drives it, or replay.c runs it on the stored inputs.
 * Threads: one. Locks: none.
 * Always: an input leaves nothing behind that affects the next one.
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

/* The condition must hold for every input; otherwise the program ends, printing the condition and
 * its place. */
#define fuzz_check(condition) ((condition) ? (void)0 : fuzz_failed_(#condition, __FILE__, __LINE__))
void fuzz_failed_(const char *condition, const char *file, int line) __attribute__((noreturn));

/* A failure must set one of these statuses, and a message of one line. */
#define fuzz_check_failure(status, ...) fuzz_check(fuzz_is_failure_((status), (const hd_status[]){__VA_ARGS__, HD_OK}))
bool fuzz_is_failure_(hd_status status, const hd_status *allowed);

/* True if the text ends within its room, and contains no terminal control characters. */
bool fuzz_is_text(const char *text, size_t room);
/* The same for all its bytes, which may contain line ends. */
bool fuzz_is_print(const char *text, size_t length);

/* The rest of an input. After its end it continues with zeros. */
typedef struct fuzz_input {
    const uint8_t *at;
    size_t left;
} fuzz_input;

/* takes a number of 1 to 8 bytes, little-endian */
uint64_t fuzz_take(fuzz_input *in, size_t width);
/* Takes up to `most` bytes, which still belong to the input. */
const uint8_t *fuzz_take_piece(fuzz_input *in, size_t most, size_t *n);

/* Returns copies in memory of exactly that length. The caller frees them. */
void *fuzz_copy(const void *bytes, size_t n);
char *fuzz_text(const void *bytes, size_t n); /* with a terminating zero */

/* Returns a folder of this process under TMPDIR; a normal exit removes it. */
const char *fuzz_folder(void);
/* Replaces a file in that folder, and makes the folders above it. */
void fuzz_write(const char *name, const void *bytes, size_t n);

/* Returns the lowest free descriptor, which shows leaks. */
int fuzz_lowest_descriptor(void);

#endif
