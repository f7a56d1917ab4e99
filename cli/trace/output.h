/* output.h - output of a trace's model: text, JSON, checked rules, files for other tools.
 *
 * Threads, Locks: see model.h. Nothing here changes the model.
 */
#ifndef CLI_TRACE_OUTPUT_H
#define CLI_TRACE_OUTPUT_H

#include <stdio.h>
#include "cli/trace/model.h"

/* At most TRACE_LINES lines, unless `all` is set. */
enum { TRACE_LINES = 40 };
void trace_put_text(const trace *t, bool all, FILE *out);
void trace_put_json(const trace *t, FILE *out);
/* The members of that object. */
struct hdi_json;
void trace_put_json_members(const trace *t, struct hdi_json *j);

/* Prints the chain of waits behind the operation "DEVICE.LANE:POSITION". False: `error` explains
 * why not. */
bool trace_put_why(const trace *t, const char *where, FILE *out, char error[512]);

/* Checks the rules of a text, and prints each broken one with its value. Returns CLI_OK or
 * CLI_FAILED. For an invalid rule it checks nothing, sets `error`, and returns CLI_USAGE. */
int trace_check(const trace *t, const char *rules, FILE *out, char error[512]);

/* Chrome's JSON format, which Perfetto opens. */
void trace_export_chrome(const trace *t, FILE *out);
/* True if HTA can show the device. HTA needs the times of every operation, and cannot read a file
 * without work. */
bool trace_hta_has(const trace *t, int device);
void trace_export_hta(const trace *t, int device, FILE *out);
/* PyTorch's memory snapshot, a pickle. */
void trace_export_snapshot(const trace *t, FILE *out);

/* The innermost range of the thread at a time, or TRACE_NONE. */
int32_t trace_range_at(const trace *t, uint32_t thread, int64_t time);

#endif
