/* parser.h - makes a verdict per pair from the records of one run of heddle-probe and the end of that process.
 *
 * Threads: one per parser. Locks: none. Blocking: nothing.
 * Always: the result depends on the arguments alone, so tests can replay any run.
 */
#ifndef HDI_PEER_PARSER_H
#define HDI_PEER_PARSER_H

#include <heddle/peer.h>
#include "peer/record.h"

/* An ordered pair of devices: their numbers in the runtime, and their positions in the program's list. */
typedef struct hdi_pair {
    int device, owner;
    int device_at, owner_at;
} hdi_pair;

typedef enum hdi_ending {
    HDI_ENDING_EXIT,      /* `detail`: the status */
    HDI_ENDING_SIGNAL,    /* `detail`: the signal */
    HDI_ENDING_SILENT,    /* it reported nothing for `detail` milliseconds and was killed */
    HDI_ENDING_GONE,      /* how it ended is not known */
    HDI_ENDING_MALFORMED, /* it sent a wrong record and was killed */
    HDI_ENDING_UNWANTED   /* it was killed since its result is not needed any more */
} hdi_ending;

typedef struct hdi_peer_parser {
    const hdi_pair *pairs;
    int n;
    double slow_margin;
    int current;    /* the current pair; -1: none yet */
    bool in_pair;   /* between PAIR and PAIR_END */
    unsigned steps; /* of this pair: a bit each */
    bool risky;     /* of this pair: a step touched the other device's memory */
    bool decided;   /* of this pair: info.verdict is final */
    bool untimed;   /* of this pair: bytes arrive, but a copy to be timed failed */
    bool failed_open;
    bool ended;
    hdi_record step;   /* the last STEP; kind 0: none */
    hd_peer_info info; /* its reason has the placeholders below */
} hdi_peer_parser;

/* Placeholders for the devices in a reason that is kept, since another runtime has other numbers. The function puts the
 * numbers in. */
#define HDI_THE_DEVICE "<device>"
#define HDI_THE_OWNER "<owner>"
void hdi_peer_name_devices(hd_peer_info *info, int device, int owner);

/* Starts a parser. `pairs` must stay valid as long as it. `slow_margin`: a pair is slow where pinned memory is more
 * than so many times as fast. */
void hdi_peer_parser_begin(hdi_peer_parser *h, const hdi_pair *pairs, int n, double slow_margin);

typedef enum hdi_parsed {
    HDI_PARSED_MALFORMED, /* not a record of this version, or not allowed here */
    HDI_PARSED_MORE,
    HDI_PARSED_PAIR,   /* a pair begins */
    HDI_PARSED_RESULT, /* pair h->current is over, with the result h->info */
    HDI_PARSED_END
} hdi_parsed;

hdi_parsed hdi_peer_parser_take(hdi_peer_parser *h, const hdi_record *record);

/* Ends a parser when the program has ended. True: pair h->current was not over, and h->info is its result. Where no
 * pair had begun, h->current is -1 and h->info is the result of all pairs. */
bool hdi_peer_parser_end(hdi_peer_parser *h, hdi_ending ending, int detail);

/* An info without a verdict, and an inconclusive one with its reason. */
hd_peer_info hdi_peer_blank(void);
hd_peer_info hdi_peer_inconclusive(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
