/* How a harness drives a reference program: one command per line on stdin, one
 * JSON object per line on stdout.
 *
 *   run [key=value]...    one measured round; keys override the flags
 *   quit, or end of file  ends the program
 *
 * Without --serve the program runs the same rounds --rounds times and ends.
 */
#ifndef BENCH_SERVE_H
#define BENCH_SERVE_H

#include <stdbool.h>
#include <stddef.h>

/* Runs one round with the given arguments ("" if none) and prints its JSON
 * line. Problems with the arguments are reported by serve_error. */
typedef void (*serve_run)(void *ctx, const char *args);

/* Prints {"ref": name, "ready": true} and serves commands until the end. */
void serve_loop(const char *name, serve_run run, void *ctx);

/* Answers {"error": text}, escaped, with at most 1023 bytes of text. */
void serve_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Copies the value of key from "a=1 b=2". Returns false if the key isn't there
 * or its value doesn't fit. */
bool arg_text(const char *args, const char *key, char *buf, size_t size);

/* Returns the number of that key, or fallback. */
long arg_long(const char *args, const char *key, long fallback);

#endif
