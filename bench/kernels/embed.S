/* embed.S - the tool's own kernel files as bytes of the tool. The build makes the .hdk files and says where they are with -I. */
#ifdef __CET__
#include <cet.h> /* that nothing here breaks the protection of jumps and returns */
#endif
    .section .rodata.tool_images, "a"
    .macro image name
    .globl \name\()_image_bytes
    .globl \name\()_image_bytes_end
    .balign 64
\name\()_image_bytes:
    .incbin "\name\().hdk"
\name\()_image_bytes_end:
    .byte 0
    .endm
    image p2p
    image layouts
    .section .note.GNU-stack, "", %progbits
