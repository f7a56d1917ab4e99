/* pin.h - pins of the program's memory, which imports share.
 *
 * Threads: any.
 * Locks: one for the list; pin.c names the driver calls under it.
 * Blocking: calls wait for the driver. A thread that takes a pin waits while another thread makes
 * or ends a pin of the same pages. It also waits for the work of freed imports that share a part of
 * the bytes (option transfer_timeout).
 * Always: a pin lasts until the last import of any runtime that uses it ends. The list contains
 * only pins that Heddle made.
 */
#ifndef HDI_BUFFER_PIN_H
#define HDI_BUFFER_PIN_H

#include "buffer/buffer.h"

typedef struct hdi_pin hdi_pin;

extern const hdi_lifetime hdi_pins_lifetime;

/* Pins the bytes, or uses the pin of a freed import that covers all of them. *out NULL: the program
 * pinned the bytes itself. *address: the address of the bytes as devices see it. Errors: ARGUMENT,
 * HOST_MEMORY (also: the limit), DRIVER, DEVICE_LOST, TIMEOUT, HANDLE (the runtime is closing). */
hd_status hdi_pin_take(hd_runtime *rt, uint64_t low, uint64_t high, const char *label, hdi_pin **out,
                       uint64_t *address);
/* Call this when a buffer that uses the pin was freed: once for each use, before hdi_pin_drop. */
void hdi_pin_freed(hd_runtime *rt, hdi_pin *pin);
/* Ends a use of the pin. The last use to end unpins. */
void hdi_pin_drop(hd_runtime *rt, hdi_pin *pin);

/* ---- the driver's view of an address: a context is current ---- */

/* Asks the driver for an attribute of an address. False: *r is the driver's code. */
bool hdi_pin_ask_address(const hdi_driver *driver, void *value, int attribute, uint64_t address, hdcu_result *r);
/* The end of the allocation or mapping at an address; the address itself if the end is unknown. */
uint64_t hdi_address_end(const hdi_driver *driver, uint64_t address);

#endif
