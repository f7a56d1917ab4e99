/* files.c - combines each word of a file with a number that follows from its place and a key. A
 * second run undoes the first. It is no cipher. */
#include <heddle/kernel.h>

HD_KERNEL(scramble, HD_INOUT(uint64_t, word), HD_VALUE(uint64_t, first), HD_VALUE(uint64_t, n), HD_VALUE(uint64_t, key))
{
    const uint64_t i = hd_global_x();
    if (i < n) {
        word[i] ^= key * (2 * (first + i) + 1);
    }
}
