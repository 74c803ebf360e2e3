/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon inside the test's process: it speaks kvpipe/ring.h over a listening socket, one session at a time, and does
 * what the test tells it: answer, stay silent, say goodbye, die, or lie. It shares no code with the library.
 */
#ifndef FAKEDAEMON_H
#define FAKEDAEMON_H

#include <kvpipe.h>
#include <kvpipe/ring.h>
#include <stdbool.h>

struct fake;

struct fake_conf {
	uint32_t abi;          /* 0: KVPIPE_ABI */
	uint32_t sq, cq;       /* 0: what HELLO asks */
	uint32_t records;      /* 0: 64 KiB */
	uint32_t results;      /* 0: 64 KiB */
	uint32_t layers;       /* 0: 4 */
	uint32_t max_inflight; /* 0: KVPIPE_MAX_INFLIGHT */
	uint64_t ops;          /* 0: all */
	uint32_t refuse;       /* answer HELLO with this reason */
	const char *refusal;
	bool farewell;         /* refuse by BYE: the daemon stops */
	bool silent;           /* do not answer HELLO */
	bool hang_up;          /* close the connection instead of answering */
	bool unsealed;         /* ring_d can shrink */
	uint32_t heartbeat;
	bool mute;             /* does not say whether bytes were granted, like older daemons */
	/* Change the welcome before it is sent. */
	void (*welcome)(struct kvpipe_welcome *w);
	/* Called for each submission, in order, on the fake's thread. NULL: every operation ends DONE at once. */
	void (*submission)(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record);
	/* Called for each request but HELLO; true: handled, else it is acked with 0 (REGISTER: a new id). */
	bool (*request)(struct fake *f, const struct kvpipe_ctl *head, const void *body, int fd);
	void *arg;
};

struct fake *fake_start(const struct fake_conf *conf);
void fake_stop(struct fake *f);
const char *fake_path(const struct fake *f);
void *fake_arg(const struct fake *f);

/* A session with it; ends the test when that fails. */
kvpipe_t *fake_connect_as(struct fake *f, uint32_t role);
kvpipe_t *fake_connect(struct fake *f); /* as a worker */
/* A take of key "k", of two blocks in each of two groups; 0: the default time. */
kvpipe_op_t fake_take(kvpipe_t *kv, uint64_t tag, int64_t timeout_ns);
/* For .submission: does nothing, as the test itself posts every end. */
void fake_nothing(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record);

/* All may be called from any thread. */
void fake_post(struct fake *f, struct kvpipe_cqe e, const struct kvpipe_run *runs, uint32_t nruns, const char *text);
void fake_post_result(struct fake *f, struct kvpipe_cqe e, const void *head, uint32_t head_len, const void *tail, uint32_t tail_len);
void fake_end(struct fake *f, uint64_t user_data, uint32_t status, uint32_t reason, uint32_t flags);
void fake_ack(struct fake *f, uint32_t seq, uint32_t reason, uint64_t value, const char *text);
void fake_send(struct fake *f, uint16_t type, uint32_t seq, const void *body, uint32_t len);
void fake_bye(struct fake *f, uint32_t reason, const char *text);
void fake_hang_up(struct fake *f);            /* the connection ends, as when the daemon dies */
void fake_pause(struct fake *f, bool paused); /* a stopped daemon: reads neither socket nor queue */
void fake_grant(struct fake *f, uint32_t slot, uint64_t user_data); /* bytes of that take may land */
void fake_die(struct fake *f);                /* hangs up and is not there until fake_return() */
void fake_return(struct fake *f);
void fake_fence_long(struct fake *f);         /* a client that goes away has a daemon that fences until fake_hang_up() */
void fake_refuse(struct fake *f, uint32_t reason, const char *text);  /* the next HELLOs; 0: no longer */
void fake_refuse_for_nothing(struct fake *f);                         /* by a BYE that names no reason */
void fake_dull(struct fake *f, bool dull);    /* the next sessions have a completion from the start, and a bell that nobody can watch: a file */
void fake_resize(struct fake *f, const struct fake_conf *sizes);        /* of all rings of the next sessions; 0: the default */
void fake_restart_regions(struct fake *f, uint64_t next);             /* the id that the next REGISTER gets */
unsigned int fake_sessions(struct fake *f);                           /* how many were opened so far */
unsigned int fake_submissions(struct fake *f);                        /* how many were handled so far */
void fake_set_submission(struct fake *f, void (*submission)(struct fake *f, const struct kvpipe_sqe *e, const uint8_t *record));
void fake_layer(struct fake *f, uint32_t slot, uint64_t user_data, uint32_t ready);
void fake_set_progress_wait(struct fake *f, uint64_t value);
void fake_beat(struct fake *f);
void fake_hush(struct fake *f, bool hushed);          /* completions come and no bell yet: a look finds them first */
void fake_set_cq_tail(struct fake *f, uint32_t tail);  /* lies */
void fake_set_sq_head(struct fake *f, uint32_t head);

/* Wait until that many submissions, or requests of a type, were handled since the start. Within a minute, or the test fails. */
void fake_await_submissions(struct fake *f, unsigned int n);
void fake_await_requests(struct fake *f, uint16_t type, unsigned int n);
void fake_await_sessions(struct fake *f, unsigned int n); /* that were opened */
bool fake_client_gone(struct fake *f);        /* whether the fake has noticed that the client closed its side */
void fake_await_hangup(struct fake *f);       /* the client closed its side */
void fake_await_reader(struct fake *f);       /* the client reads what comes from now on, and has the socket open */
struct kvpipe_sqe fake_last(struct fake *f);  /* the newest submission */
uint32_t fake_cq_head(struct fake *f);
uint64_t fake_progress(struct fake *f);
struct kvpipe_hello fake_hello(struct fake *f);

#endif
