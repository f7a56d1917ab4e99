/* parser.h - what follows from the records of one run of heddle-probe: a verdict per pair. A pure function of what was said and of how the
 * program ended, tested as such. One thread; no locks.
 */
#ifndef HDI_PEER_PARSER_H
#define HDI_PEER_PARSER_H

#include <heddle/peer.h>
#include "peer/record.h"

/* An ordered pair of devices: their numbers in the runtime and their positions in the program's list. */
typedef struct hdi_pair {
    int device, owner;
    int device_at, owner_at;
} hdi_pair;

typedef enum hdi_ending {
    HDI_ENDING_EXIT,      /* `detail`: the status */
    HDI_ENDING_SIGNAL,    /* `detail`: the signal */
    HDI_ENDING_SILENT,    /* it was killed after `detail` milliseconds */
    HDI_ENDING_GONE,      /* it is not known how */
    HDI_ENDING_MALFORMED, /* it was killed, since it said something that makes no sense */
    HDI_ENDING_UNWANTED   /* it was killed, since nobody wants to know any more: says nothing */
} hdi_ending;

typedef struct hdi_peer_parser {
    const hdi_pair *pairs;
    int n;
    double slow_margin;
    int current;    /* the pair it is at, -1: none yet */
    bool in_pair;   /* between PAIR and PAIR_END */
    unsigned steps; /* of this pair, a bit each */
    bool risky;     /* of this pair: the other device's memory has been touched */
    bool decided;   /* of this pair: info.verdict is what it will be */
    bool untimed;   /* of this pair: bytes arrive, but the copies that were to be timed failed */
    bool failed_open;
    bool ended;
    hdi_record step;   /* the last STEP; kind 0: none */
    hd_peer_info info; /* its reason names the devices as below */
} hdi_peer_parser;

/* The devices in a reason that is kept, since their numbers are other ones in another runtime; and putting the numbers in. */
#define HDI_THE_DEVICE "<device>"
#define HDI_THE_OWNER "<owner>"
void hdi_peer_name_devices(hd_peer_info *info, int device, int owner);

/* `pairs` stay the caller's. `slow_margin`: a pair is slow where pinned memory is more than so many times as fast. */
void hdi_peer_parser_begin(hdi_peer_parser *h, const hdi_pair *pairs, int n, double slow_margin);

typedef enum hdi_parsed {
    HDI_PARSED_MALFORMED, /* not a record of this version, or not one that can come here */
    HDI_PARSED_MORE,
    HDI_PARSED_PAIR,   /* a pair has begun */
    HDI_PARSED_RESULT, /* h->info is the result about h->current, which is over */
    HDI_PARSED_END
} hdi_parsed;

hdi_parsed hdi_peer_parser_take(hdi_peer_parser *h, const hdi_record *record);

/* The program has ended. True: h->info is the result about pair h->current, which was not over. Where no pair had begun (then h->current
 * is -1) it is what can be said about all of them. */
bool hdi_peer_parser_end(hdi_peer_parser *h, hdi_ending ending, int detail);

/* An info that says nothing, and one that says why there is nothing to say. */
hd_peer_info hdi_peer_blank(void);
hd_peer_info hdi_peer_inconclusive(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
