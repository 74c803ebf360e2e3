/* The way a harness drives a reference program: one command a line on stdin,
 * one JSON object a line on stdout.
 *
 *   run [key=value]...    one measured round; keys override the flags
 *   quit, or end of file  ends the program
 *
 * Without --serve the same rounds are run --rounds times and the program ends.
 */
#ifndef BENCH_SERVE_H
#define BENCH_SERVE_H

#include <stdbool.h>
#include <stddef.h>

/* Runs one round with the given arguments ("" when none) and prints its JSON
 * line. Problems with the arguments are reported by serve_error. */
typedef void (*serve_run)(void *ctx, const char *args);

/* Prints {"ref": name, "ready": true} and serves commands until the end. */
void serve_loop(const char *name, serve_run run, void *ctx);

/* Answers {"error": text}, of at most 1023 bytes, whatever is in it. */
void serve_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Copies the value of key from "a=1 b=2"; false when the key isn't there or
 * its value doesn't fit. */
bool arg_text(const char *args, const char *key, char *buf, size_t size);

/* The number of that key, or fallback. */
long arg_long(const char *args, const char *key, long fallback);

#endif
