/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipes and lookup buffers of fake daemons: each end of a test has a fake of its own, and they share one list of items. Matching is
 * a linear search; a test may hold things up and let them go.
 */
#ifndef FAKE_EXCHANGE_H
#define FAKE_EXCHANGE_H

#include "fakedaemon.h"

struct exchange;

struct exchange *exchange_start(unsigned int ends); /* at most 4 */
void exchange_stop(struct exchange *x);
kvpipe_t *exchange_session(struct exchange *x);     /* on which ends are opened, one after the other */
struct fake *exchange_fake(struct exchange *x, unsigned int end);
/* Says which end is opened next on kv. */
void exchange_next(struct exchange *x, kvpipe_t *kv, unsigned int end);

/* While held, no GET ends. */
void exchange_hold(struct exchange *x, bool held);
/* The next n GETs that would be DONE fail with reason, and MORE; their RELEASED comes with exchange_release(). */
void exchange_fail(struct exchange *x, unsigned int n, uint32_t reason);
void exchange_release(struct exchange *x);
/* From now on BIND is refused. */
void exchange_refuse(struct exchange *x, uint32_t reason, const char *text);
/* The next LAYOUT is refused. */
void exchange_refuse_layout(struct exchange *x, uint32_t reason, const char *text);
/* From now on PUTs are refused, with texts that end in their number; 0: no longer. */
void exchange_refuse_puts(struct exchange *x, uint32_t reason);
/* Submissions of each fake's first sessions are taken and forgotten. */
void exchange_mute(struct exchange *x, unsigned int sessions);
/* From now on the fakes hang up instead of answering REGISTER. */
void exchange_leave(struct exchange *x);
/* The next request of that type is not answered: its fake stands still then, until fake_pause() lets it go on. */
void exchange_stand_still(struct exchange *x, uint16_t type);
/* Waits until that many GETs (DECLINE and ITEM included) or PUTs came. */
void exchange_await_gets(struct exchange *x, unsigned int n);
void exchange_await_puts(struct exchange *x, unsigned int n);
void exchange_await_declines(struct exchange *x, unsigned int n);
unsigned int exchange_shorts(struct exchange *x);

#endif
