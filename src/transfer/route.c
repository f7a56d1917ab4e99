/* route.c - see route.h. */
#include "transfer/route.h"

static uint64_t at_most(uint64_t value, uint64_t most)
{
    return value < most ? value : most;
}

/* Chunks and parts of a copy between devices that goes through pinned memory. */
static hdi_route staged(const hdi_route_facts *f)
{
    hdi_route route = {.kind = HDI_ROUTE_STAGED, .device = f->src, .second = f->dst, .lanes = HDI_LANES_QUICK};
    if (f->bytes <= HDI_STAGED_SMALL) {
        route.piece = route.chunk = HDI_STAGED_SMALL;
    } else if (f->bytes <= HDI_STAGED_MEDIUM) {
        route.piece = route.chunk = HDI_STAGED_MEDIUM;
    } else {
        uint64_t part = (f->bytes - 1) / HDI_STAGED_PARTS / HDI_STAGED_STEP * HDI_STAGED_STEP + HDI_STAGED_STEP;
        route.lanes = HDI_LANES_PAIR;
        route.piece = part < HDI_STAGED_MEDIUM ? HDI_STAGED_MEDIUM : at_most(part, HDI_STAGED_LARGE);
        route.chunk = HDI_STAGED_LARGE;
    }
    return route;
}

static hdi_route straight(hdi_route_kind kind, int device, uint64_t bytes, uint64_t quick, uint64_t piece)
{
    return (hdi_route){
        .kind = kind, .device = device, .lanes = bytes <= quick ? HDI_LANES_QUICK : HDI_LANES_BULK, .piece = piece};
}

hdi_route hdi_route_plan(const hdi_route_facts *f)
{
    if (f->src < 0 && f->dst < 0) {
        return straight(HDI_ROUTE_HOST, 0, f->bytes, HDI_QUICK_LINK, HDI_MAPPING_LINK);
    }
    if (f->src < 0) {
        return straight(HDI_ROUTE_TO_DEVICE, f->dst, f->bytes, HDI_QUICK_LINK, HDI_MAPPING_LINK);
    }
    if (f->dst < 0) {
        return straight(HDI_ROUTE_TO_HOST, f->src, f->bytes, HDI_QUICK_LINK, HDI_MAPPING_LINK);
    }
    if (f->src == f->dst) {
        return straight(HDI_ROUTE_ON_DEVICE, f->src, f->bytes, HDI_QUICK_MEMORY, HDI_MAPPING_MEMORY);
    }
    /* Writing to a peer is posted and reading is not, so the source does it where it can. */
    if (f->src_to_dst == HDI_LINK_GOOD) {
        return straight(HDI_ROUTE_PEER, f->src, f->bytes, HDI_QUICK_MEMORY, HDI_MAPPING_MEMORY);
    }
    if (f->dst_to_src == HDI_LINK_GOOD) {
        return straight(HDI_ROUTE_PEER, f->dst, f->bytes, HDI_QUICK_MEMORY, HDI_MAPPING_MEMORY);
    }
    return staged(f);
}
