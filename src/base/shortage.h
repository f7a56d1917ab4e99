/* shortage.h - limits of the process that may have caused a failure.
 *
 * A driver reports a lack of descriptors or of addresses as a lack of memory. So code that reports
 * a lack of memory asks here.
 *
 * Threads: any. Locks: none.
 */
#ifndef HDI_BASE_SHORTAGE_H
#define HDI_BASE_SHORTAGE_H

/* The text for a message, such as "the process has no descriptors left (ulimit -n)". NULL: no such
 * limit is known. Keeps errno. */
const char *hdi_shortage_text(void);

#endif
