/* header.S - the headers of kernel source as bytes of the library, for sources that NVRTC compiles. The build gives their folder with -I.
 * Each ends with a zero byte. nvrtc.c has their names in this order. */
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
    .byte 0
    .incbin "heddle/kernel_atomic.h"
    .byte 0
    .incbin "heddle/kernel_bits.h"
    .byte 0
    .incbin "heddle/kernel_half.h"
    .byte 0
    .incbin "heddle/kernel_math.h"
    .byte 0
    .incbin "heddle/kernel_print.h"
    .byte 0
    .incbin "heddle/kernel_warp.h"
    .byte 0
hdi_kernel_header_end:
    .section .note.GNU-stack, "", %progbits
