/* report.h - prints the findings of `heddle doctor` as text for people, and as JSON.
 *
 * Threads: one at a time. Locks: none.
 */
#ifndef CLI_DOCTOR_REPORT_H
#define CLI_DOCTOR_REPORT_H

#include <stdio.h>
#include "cli/doctor/findings.h"

void doctor_print_text(const doctor_snapshot *s, const doctor_findings *f, FILE *out);
void doctor_print_json(const doctor_snapshot *s, const doctor_findings *f, FILE *out);

#endif
