/* embed.S - the built-in kernels' file as bytes of the library. The build makes builtin.hdk and says where it is with -I. */
    .section .rodata.hdi_builtin_image, "a"
    .globl hdi_builtin_image
    .hidden hdi_builtin_image
    .globl hdi_builtin_image_end
    .hidden hdi_builtin_image_end
    .balign 64
hdi_builtin_image:
    .incbin "builtin.hdk"
hdi_builtin_image_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
