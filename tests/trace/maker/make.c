/* make.c - writes a trace for scripts: with a planted fault, random, or from a script on stdin.
 *
 *    test_trace_maker planted NAME | random SEED DEVICES OPERATIONS | script    > FILE
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/planted.h"
#include "trace/random.h"

int main(int argc, char **argv)
{
    static script s;
    static char text[1 << 16];
    bool made = false;
    if (argc == 3 && strcmp(argv[1], "planted") == 0) {
        for (int i = 0; i < planted_count; i++) {
            if (strcmp(argv[2], planted_traces[i].name) == 0) {
                planted_make(&s, &planted_traces[i]);
                made = true;
            }
        }
    } else if (argc == 5 && strcmp(argv[1], "random") == 0) {
        random_trace(&s, strtoull(argv[2], NULL, 10), atoi(argv[3]), atoi(argv[4]), 1);
        made = true;
    } else if (argc == 2 && strcmp(argv[1], "script") == 0) {
        script_begin(&s);
        text[fread(text, 1, sizeof text - 1, stdin)] = 0;
        script_run(&s, text);
        made = true;
    }
    return made && fwrite(s.records, sizeof *s.records, s.n, stdout) == s.n && fflush(stdout) == 0 ? 0 : 2;
}
