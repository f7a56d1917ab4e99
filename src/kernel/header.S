/* header.S - heddle/kernel.h as bytes of the library, for sources that NVRTC compiles. The build gives its folder with -I. */
#ifdef __CET__
#include <cet.h> /* so that nothing here breaks the protection of jumps and returns */
#endif
    .section .rodata.hdi_kernel_header, "a"
    .globl hdi_kernel_header
    .hidden hdi_kernel_header
    .globl hdi_kernel_header_end
    .hidden hdi_kernel_header_end
hdi_kernel_header:
    .incbin "heddle/kernel.h"
hdi_kernel_header_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
