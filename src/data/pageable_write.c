/* pageable_write.c - large hd_writes: whoever takes a turn fills a crate with the next part and submits its copy.
 *
 * Threads: the caller and copy threads, see pageable.h. Blocking: for crates, of which a thread holds none then.
 */
#include "base/error.h"
#include "data/pageable.h"

static hdi_turn fill(void *context, bool caller)
{
    hdi_pageable *t = context;
    if (!hdi_pageable_goes_on(t)) {
        return HDI_TURN_OVER;
    }
    hdi_crate *crate;
    hd_status status = hdi_crate_take(t->ring, HDI_CRATE_WAIT, hdi_pageable_timeout(t, caller), &crate);
    if (!status && !crate && !caller) {
        return HDI_TURN_WAITS;
    }
    if (!status && !crate) {
        status = hdi_crates_not_given(t->ring);
    }
    if (status) {
        hdi_pageable_fail(t, status);
        return HDI_TURN_OVER;
    }
    hdi_pageable_part part;
    uint64_t last = 0;
    bool found = hdi_pageable_next(t, t->ring->bytes, &part);
    if (found) {
        hdi_pageable_copy(t, crate->buffer->host + part.page_offset, t->memory + part.at, part.bytes);
        status = hdi_pageable_submit(t, crate->buffer, &part, &last);
    }
    hdi_crate_give(t->ring, crate, last, found && part.signalled);
    if (status) {
        hdi_pageable_fail(t, status);
    }
    return found && !status ? HDI_TURN_DID : HDI_TURN_OVER;
}

hd_status hdi_pageable_write(hdi_pageable *t)
{
    hd_error error;
    t->error = &error;
    hd_status status = hdi_pageable_begin(t);
    if (!status) {
        hdi_copy_pool_share(t->rt, t->device->index, t->threads - 1, fill, t);
        status = hdi_pageable_result(t);
    }
    return status;
}
