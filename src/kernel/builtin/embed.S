/* embed.S - the built-in kernel files as bytes of the library. The build makes the .hdk files and says where they are with -I. */
#ifdef __CET__
#include <cet.h> /* so that nothing here breaks the protection of jumps and returns */
#endif
    .section .rodata.hdi_builtin_images, "a"
    .macro image name
    .globl hdi_image_\name
    .hidden hdi_image_\name
    .globl hdi_image_\name\()_end
    .hidden hdi_image_\name\()_end
    .balign 64
hdi_image_\name:
    .incbin "\name\().hdk"
hdi_image_\name\()_end:
    .byte 0
    .endm
    image builtin
    image tensor
    image matmul
    image probe
    .section .note.GNU-stack, "", %progbits
