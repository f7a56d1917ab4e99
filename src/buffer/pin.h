/* pin.h - memory of the program's own that is pinned: which imports use a pin, and when it ends.
 *
 * Threads: any.
 * Locks: one for the list, not held while the driver is called.
 * Blocking: for calls of the driver. Taking one waits for pins that are being made or ended.
 * It also waits for the work of freed imports that have a part of the bytes (option transfer_timeout).
 * Always: a pin lasts until the last import that uses it has ended. Pins that the program made are not in the list.
 */
#ifndef HDI_BUFFER_PIN_H
#define HDI_BUFFER_PIN_H

#include "buffer/buffer.h"

typedef struct hdi_pin hdi_pin;

extern const hdi_lifetime hdi_pins_lifetime;

/* Pins the bytes, or uses the pin of a freed import that has all of them. *out NULL: the program has pinned them. *address: as devices see them.
 * Errors: ARGUMENT, HOST_MEMORY (also: the limit), DRIVER, DEVICE_LOST, TIMEOUT, HANDLE (the runtime is closing). */
hd_status hdi_pin_take(hd_runtime *rt, uint64_t low, uint64_t high, const char *label, hdi_pin **out,
                       uint64_t *address);
/* The buffer of one that uses it was freed: once for each use, before hdi_pin_drop. */
void hdi_pin_freed(hd_runtime *rt, hdi_pin *pin);
/* Ends a use. The last one unpins. */
void hdi_pin_drop(hd_runtime *rt, hdi_pin *pin);

/* ---- what the driver has at an address: a context is current ---- */

bool hdi_address_ask(const hdi_driver *driver, void *value, int attribute, uint64_t address, hdcu_result *r);
/* Where it ends: what one call of the driver made, or one mapping. The address itself where that is unknown. */
uint64_t hdi_address_end(const hdi_driver *driver, uint64_t address);

#endif
