/* site.h - the address of a call as text, for messages and reports.
 *
 * Threads: any. Locks: those of dladdr, for a moment.
 */
#ifndef HDI_BASE_SITE_H
#define HDI_BASE_SITE_H

#define HDI_SITE_BYTES 128

/* "symbol+0x12", or "module+0x12" for addr2line where the symbol is not known. */
void hdi_site_text(const void *site, char out[HDI_SITE_BYTES]);

#endif
