/* embed.S - the files of the report's page as bytes of the tool. The build gives their folder with -I. Together, in this order, the
 * scripts form one script. */
#ifdef __CET__
#include <cet.h> /* so that nothing here breaks the protection of jumps and returns */
#endif
    .section .rodata.report_page, "a"
    .macro begin name
    .globl \name
    .hidden \name
\name:
    .endm
    .macro end name
    .globl \name\()_end
    .hidden \name\()_end
\name\()_end:
    .byte 0
    .endm
    begin page_html
    .incbin "page.html"
    end page_html
    begin page_css
    .incbin "page.css"
    end page_css
    begin page_js
    .incbin "data.js"
    .incbin "draw.js"
    .incbin "summary.js"
    .incbin "lanes.js"
    .incbin "lanes_input.js"
    .incbin "lanes_tables.js"
    .incbin "matrix.js"
    .incbin "memory.js"
    .incbin "peers.js"
    .incbin "transfers.js"
    .incbin "submits.js"
    .incbin "losses.js"
    .incbin "compare.js"
    .incbin "ranks.js"
    .incbin "main.js"
    end page_js
    .section .note.GNU-stack, "", %progbits
