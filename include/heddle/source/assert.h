/* assert.h - replaces <assert.h> in kernel source: the assert of heddle/kernel_print.h.
 *
 * `heddle cc` puts this folder in front of the system's headers. The system's assert would end the
 * process.
 */
#ifndef HEDDLE_SOURCE_ASSERT_H
#define HEDDLE_SOURCE_ASSERT_H

#include <heddle/kernel.h>

#endif
