/* undo.c - see undo.h for threads, locks and guarantees. */
#include "buffer/undo.h"
#include <stdlib.h>
#include "base/wait.h"
#include "buffer/buffer.h"
#include "buffer/kind.h"
#include "buffer/submit_fast.h"

#define DETACHED_SLEEP_NS 10000

bool hdi_undo_note(hd_runtime *rt, hdi_undo *undo, const hdi_use *uses, size_t n_uses)
{
    undo->n_uses = 0;
    if (n_uses == 0) {
        return true;
    }
    undo->uses = undo->uses ? undo->uses : malloc(n_uses * sizeof *undo->uses);
    bool room = undo->uses != NULL;
    for (size_t i = 0; i < n_uses && room; i++) {
        hdi_undo_use *own = &undo->uses[undo->n_uses++];
        *own = (hdi_undo_use){.use = uses[i], .first = undo->displaced.n};
        room =
            !uses[i].write || hdi_uses_displace(rt, &uses[i].buffer->uses, uses[i].low, uses[i].high, &undo->displaced);
        own->n = undo->displaced.n - own->first;
    }
    return room;
}

static bool undo_withdraw_use(hd_runtime *rt, const hdi_undo *undo, const hdi_undo_use *own, hdi_point point)
{
    struct hd_buffer *b = own->use.buffer;
    hdi_lock *lock = hdi_order_lock(rt, b->order);
    const hdi_noted_use noted = {.low = own->use.low,
                                 .high = own->use.high,
                                 .write = own->use.write,
                                 .point = point,
                                 .displaced = undo->displaced.segments + own->first,
                                 .n = own->n};
    hdi_lock_take(lock);
    while (hdi_use_is_same(&own->use) && hdi_uses_detached(&b->uses)) {
        hdi_lock_release(lock);
        hdi_sleep_for(DETACHED_SLEEP_NS);
        hdi_lock_take(lock);
    }
    bool there = hdi_use_is_same(&own->use) && hdi_buffer_losses(b) == own->use.losses;
    bool room = !there || hdi_uses_withdraw(rt, &b->uses, b->order, &noted);
    hdi_lock_release(lock);
    return room;
}

bool hdi_undo_withdraw(hd_runtime *rt, hdi_undo *undo, hdi_point point)
{
    bool room = true;
    /* in reverse order, if the operation uses a buffer twice, the later use must be undone first */
    for (uint32_t i = undo->n_kinds; i-- > 0;) {
        undo->kinds[i].buffer->kind->put_back(&undo->kinds[i]);
    }
    for (uint32_t i = 0; i < undo->n_uses; i++) {
        room &= undo_withdraw_use(rt, undo, &undo->uses[i], point);
    }
    hdi_undo_drop(undo);
    return room;
}

void hdi_undo_drop(hdi_undo *undo)
{
    for (uint32_t i = 0; i < undo->n_kinds; i++) {
        hdi_hold_end(undo->kinds[i].buffer);
    }
    hdi_displaced_release(&undo->displaced);
    free(undo->uses);
    free(undo->kinds);
    *undo = (hdi_undo){.n_uses = 0};
}
