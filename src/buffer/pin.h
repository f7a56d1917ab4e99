/* pin.h - pins of the program's memory, which imports share.
 *
 * Threads: any.
 * Locks: one for the list; pin.c names the driver calls under it.
 * Blocking: calls wait for the driver. A thread that takes a pin waits while another thread makes
 * or ends a pin of the same pages. A thread also waits if freed imports whose work is not done
 * share only some of its bytes (option transfer_timeout).
 * Always: a pin lasts until the last import that uses it ended, in whichever runtime. The list
 * contains only pins that Heddle made.
 */
#ifndef HDI_BUFFER_PIN_H
#define HDI_BUFFER_PIN_H

#include "buffer/buffer.h"

typedef struct hdi_pin hdi_pin;

extern const hdi_lifetime hdi_pins_lifetime;

/* Pins the bytes, or uses an existing pin that covers all of them. *out NULL: the program pinned
 * the bytes itself. *address: the address of the bytes as devices see it. Errors: ARGUMENT,
 * HOST_MEMORY (also: the limit), DRIVER, DEVICE_LOST, TIMEOUT, HANDLE (the runtime is closing). */
hd_status hdi_pin_take(hd_runtime *rt, uint64_t low, uint64_t high, const char *label, hdi_pin **out,
                       uint64_t *address);
/* Call this function once for each use of the pin: when the program frees the buffer, and before
 * hdi_pin_drop. */
void hdi_pin_freed(hd_runtime *rt, hdi_pin *pin);
/* Ends a use of the pin. The end of the last use unpins the memory. */
void hdi_pin_drop(hd_runtime *rt, hdi_pin *pin);

/* ---- the driver's view of an address: a context is current ---- */

/* Asks the driver for an attribute of an address. False: *r is the driver's code. */
bool hdi_pin_ask_address(const hdi_driver *driver, void *value, int attribute, uint64_t address, hdcu_result *r);
/* The end of the allocation or mapping at an address; the address itself if the end is unknown. */
uint64_t hdi_address_end(const hdi_driver *driver, uint64_t address);

#endif
