/* route.h - which way bytes go: a pure function of facts, tested as a table. Any thread, no locks. */
#ifndef HDI_DATA_ROUTE_H
#define HDI_DATA_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

typedef enum hdi_route_kind {
    HDI_ROUTE_TO_DEVICE, /* pinned memory to a device, in the device's inward lane */
    HDI_ROUTE_TO_HOST,   /* a device to pinned memory, in the device's outward lane */
    HDI_ROUTE_ON_DEVICE, /* inside a device */
    HDI_ROUTE_PEER,      /* from device to device; the one named reaches the other's memory */
    HDI_ROUTE_STAGED,    /* from device to device through pinned chunks: out of the one, then into the other */
    HDI_ROUTE_HOST       /* between pinned buffers */
} hdi_route_kind;

typedef struct hdi_route {
    hdi_route_kind kind;
    int device; /* whose lane does the work; for STAGED the source's, the destination's lane does the second half */
} hdi_route;

typedef struct hdi_route_facts {
    int src, dst;         /* owning device, or -1 for pinned host memory */
    bool src_reaches_dst; /* the source's device may use the destination's memory */
    bool dst_reaches_src;
} hdi_route_facts;

static inline hdi_route hdi_route_plan(const hdi_route_facts *f)
{
    if (f->src < 0 && f->dst < 0) {
        return (hdi_route){HDI_ROUTE_HOST, 0};
    }
    if (f->src < 0) {
        return (hdi_route){HDI_ROUTE_TO_DEVICE, f->dst};
    }
    if (f->dst < 0) {
        return (hdi_route){HDI_ROUTE_TO_HOST, f->src};
    }
    if (f->src == f->dst) {
        return (hdi_route){HDI_ROUTE_ON_DEVICE, f->src};
    }
    /* Writing to a peer is posted and reading is not, so the source does it where it can. */
    if (f->src_reaches_dst) {
        return (hdi_route){HDI_ROUTE_PEER, f->src};
    }
    if (f->dst_reaches_src) {
        return (hdi_route){HDI_ROUTE_PEER, f->dst};
    }
    return (hdi_route){HDI_ROUTE_STAGED, f->src};
}

#endif
