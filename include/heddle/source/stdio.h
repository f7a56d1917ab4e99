/* stdio.h - replaces <stdio.h> in kernel source: the printf of heddle/kernel_print.h.
 *
 * `heddle cc` puts this folder in front of the system's headers. The rest of the system's <stdio.h>
 * is of no use in kernels.
 */
#ifndef HEDDLE_SOURCE_STDIO_H
#define HEDDLE_SOURCE_STDIO_H

#include <heddle/kernel.h>

#endif
