/* embed.S - the benchmarks' own kernel file as bytes of their program. The build makes the .hdk file and says where it is with -I. */
#ifdef __CET__
#include <cet.h> /* so that nothing here breaks the protection of jumps and returns */
#endif
    .section .rodata.bench_images, "a"
    .macro image name
    .globl \name\()_image_bytes
    .globl \name\()_image_bytes_end
    .balign 64
\name\()_image_bytes:
    .incbin "\name\().hdk"
\name\()_image_bytes_end:
    .byte 0
    .endm
    image layouts
    .section .note.GNU-stack, "", %progbits
