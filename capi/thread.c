/* SPDX-License-Identifier: Apache-2.0 */
/* What each calling thread has of its own: its last error, the results that its completions point into, and whether it can be
 * cancelled. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct chunk {
	struct chunk *next;
	max_align_t data[];
};

static __thread char last_error[KV_TEXT];
static __thread struct chunk *chunks;

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static bool key_ok;

static void thread_end(void *unused)
{
	(void)unused;
	kv_thread_reset();
}

static void make_key(void)
{
	key_ok = pthread_key_create(&key, thread_end) == 0;
}

void *kv_thread_alloc(size_t size)
{
	pthread_once(&key_once, make_key);
	/* Any value but NULL makes the destructor run at the thread's end. */
	if (!key_ok || (chunks == NULL && pthread_setspecific(key, last_error) != 0))
		return NULL;
	struct chunk *c = malloc(sizeof(*c) + size);
	if (c == NULL)
		return NULL;
	c->next = chunks;
	chunks = c;
	return c->data;
}

void kv_thread_reset(void)
{
	while (chunks != NULL) {
		struct chunk *next = chunks->next;
		free(chunks);
		chunks = next;
	}
}

int (kv_err)(enum kvpipe_reason reason, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(last_error, sizeof(last_error), fmt, ap);
	va_end(ap);
	/* Names in it are whatever their owners wrote: a message must stay one line, and do nothing to the terminal that shows it. */
	for (char *c = last_error; *c != '\0'; c++)
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
	return -(int)reason;
}

int kv_uncancellable(void)
{
	int was;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
	return was;
}

void kv_cancellable_again(int *was)
{
	pthread_setcancelstate(*was, was);
}

const char *kvpipe_last_error(void)
{
	return last_error;
}
