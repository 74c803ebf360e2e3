/* SPDX-License-Identifier: Apache-2.0 */
/*
 * endpoint.h - what the files of pipes and lookup buffers share.
 *
 * An end is a session of its own (a kvpipe_t whose kv->end is set), so that its credits, its death and its waiting affect
 * nobody else. Its operations are not those of op.c: they are many and small, and only the end sees them. So they live in a
 * table of their own, and completions go straight to them. An end uses its session's locks. It also has a gate and a pump,
 * and its pool of blocks has a lock; internal.h gives the order of them all.
 */
#ifndef KVPIPE_ENDPOINT_H
#define KVPIPE_ENDPOINT_H

#include "internal.h"

#define KV_MEMBERS 5u                         /* tensors of an entry */
#define KV_ALIGN 64u                          /* where tensors begin in an item */
#define KV_ITEM_MAX (UINT32_MAX - KV_ALIGN)   /* bytes of an item: a block list counts them as tokens */
#define KV_ITEMS 262144u                      /* operations that a home has at a time: one per item in it, its BIND, ... */
#define KV_BLOCK_MAX 65536u                   /* bytes; enough for the largest capacity */
#define KV_BLOCKS_MAX (1u << 26)              /* blocks of an arena: the daemon accepts no more in a layout */
#define KV_PIPE_BYTES (64ull << 20)           /* default capacity */
#define KV_NAP_NS 20000
#define KV_CACHED (16u << 20)                 /* bytes: when more waits in a pipe, it is read from memory, not from caches */
#define KV_WINDOW 64u
#define KV_WINDOW_MAX 1024u
#define KV_AHEAD_NS (3600 * KV_SEC)           /* how long the daemon keeps a GET waiting that was posted ahead */

/* ---- tensors (tensor.c, meta.c, tokens.c) ---- */
int kv_tensor_check(const char *what, const struct kvpipe_tensor *user, struct kvpipe_tensor *t, uint64_t *nbytes);
/* Whether frameworks can have that shape, with elements of size bytes: strides and sizes fit 63 bits, even without elements. */
bool kv_shape_exists(uint32_t ndim, const uint64_t *shape, uint64_t size);

struct kv_sink;
void kv_tensor_write(struct kv_sink *to, const struct kvpipe_tensor *t);

/* One member of an item, as its meta describes it. */
struct kv_member {
	uint64_t offset; /* bytes */
	uint64_t shape[KVPIPE_MAX_DIMS];
	uint32_t dtype, ndim;
	bool present;
};

size_t kv_meta_encode(uint8_t *to, const struct kv_member *members, uint32_t n); /* at most KVPIPE_MAX_META */
/* Returns the number of members, at most max, which all lie within `bytes`. 0: this version does not understand the meta. */
uint32_t kv_meta_decode(const uint8_t *meta, size_t len, uint64_t bytes, struct kv_member *members, uint32_t max);

/* *out: the tokens that roi keeps (NULL: all of them), malloced. */
int kv_tokens(const char *what, const struct kvpipe_tensor *tokens, const struct kvpipe_tensor *roi, uint32_t **out, uint32_t *n);

/* ---- the pool of blocks (pool.c) ---- */
struct kv_run { /* of block ids */
	uint32_t first, n;
};

struct kv_span { /* the blocks of an item */
	uint32_t nruns, blocks;
	struct kv_run one;   /* when nruns is 1, as it nearly always is */
	struct kv_run *many; /* otherwise; malloced */
};

struct kv_pool { /* lives until its end and the last message in its blocks are gone */
	uint64_t process;
	struct kv_memory memory;
	uint32_t block; /* bytes; a power of two */
	uint32_t nblocks;
	pthread_mutex_t lock; /* guards what follows */
	uint32_t refs, nfree, low; /* low: no block below it is free */
	uint32_t lent;  /* blocks lent to messages */
	uint64_t *used; /* a bit per block */
};

uint32_t kv_block_bytes(uint64_t capacity);
uint64_t kv_home_bytes(uint64_t capacity);                 /* size of a home's arena for that capacity */
int kv_pool_new(uint64_t bytes, uint32_t block, struct kv_pool **out);
void kv_pool_unref(struct kv_pool *p);
void kv_pool_forget(struct kv_pool *p); /* kv_pool_unref() in a forked child: the memory is the parent's */
uint32_t kv_pool_need(const struct kv_pool *p, uint64_t bytes); /* in blocks */
bool kv_pool_fits(struct kv_pool *p, uint32_t blocks);
bool kv_pool_take(struct kv_pool *p, uint32_t blocks, struct kv_span *out); /* all of them or none */
void kv_pool_give(struct kv_pool *p, struct kv_span *s);
void kv_pool_trim(struct kv_pool *p, struct kv_span *s, uint32_t blocks); /* gives back all but the first `blocks` */
bool kv_pool_lend(struct kv_pool *p, const struct kv_span *s, uint32_t limit); /* to a message; false: copy instead */
void kv_pool_return(struct kv_pool *p, struct kv_span *s);
uint32_t kv_pool_lent(struct kv_pool *p); /* in blocks; other threads may return some at any time */
const struct kv_run *kv_runs(const struct kv_span *s);

/* Writes a stream of bytes into the blocks of a span. */
struct kv_sink {
	const struct kv_pool *pool;
	const struct kv_run *run;
	uint8_t *at;
	size_t left; /* of the run */
	bool past;   /* write past the caches: the bytes are read much later */
};
void kv_sink_open(struct kv_sink *k, const struct kv_pool *p, const struct kv_span *s);
void kv_sink_write(struct kv_sink *k, const void *from, size_t n);
void kv_sink_skip(struct kv_sink *k, size_t n);
void kv_span_read(const struct kv_pool *p, const struct kv_span *s, uint8_t *to, size_t n);

/* ---- copies (copy.c) ---- */
/* memcpy() for bytes that are read only after more was written than caches hold. */
void kv_copy_past(uint8_t *to, const uint8_t *from, size_t n);

/* ---- messages (msg.c) ---- */
struct kvpipe_msg {
	uint64_t process;
	struct kv_pool *pool; /* it lies in this pool's blocks; NULL: data is malloced */
	struct kv_span span;
	uint8_t *data;
	uint64_t matched;
	uint32_t count;
	struct kv_member members[];
};

/* ---- operations of an end (end_ops.c) ---- */
enum kv_eop_state { KV_EOP_FREE, KV_EOP_READY, KV_EOP_RUNNING, KV_EOP_ENDED };

struct kv_get;
struct kv_answer { /* of an operation that a thread waits for */
	uint64_t op;    /* PUT: its id */
	bool done;
	uint32_t status;
	enum kvpipe_reason reason; /* FAILED */
	char text[KV_TEXT];
};

struct kv_eop {
	uint64_t id;          /* user_data: generation and index */
	struct kv_span span;  /* blocks that it holds */
	uint64_t bytes;       /* PUT: what counts against the capacity */
	uint64_t number;      /* PUT: which of its end's, from 1 */
	struct kv_get *get;   /* GET: its owner; NULL: it has none any more */
	struct kv_answer *answer;
	uint32_t next_free;
	uint32_t ahead;       /* GET: blocks that count as room given ahead */
	uint8_t opcode, state;
	bool past;            /* PUT: more waits before it than caches hold */
	bool unwanted;        /* GET: given up before it was submitted, so it never is */
};

struct kv_flush { /* a wait until everything that was put before it is gone */
	struct kv_flush *next;
	uint64_t last; /* number of the last PUT before it */
	uint32_t left; /* how many PUTs up to that one are left */
};

struct kv_done { /* a terminal completion */
	uint32_t status, reason, flags;
	struct kvpipe_got got;          /* when it is of a GET that is DONE */
	uint8_t meta[KVPIPE_MAX_META];
	char text[KV_TEXT];
};

struct kv_record { /* the parts of a submission's record; absent ones are left out */
	uint8_t opcode;
	uint64_t target;
	int64_t timeout_ns;
	const void *head;
	size_t head_len;
	struct kv_string strings[3];
	const uint32_t *tokens;
	uint32_t ntokens;
	const struct kv_span *span; /* becomes a block list that covers `bytes` */
	uint64_t bytes;
};

/* ---- ends (endpoint.c) ---- */
struct kv_end {
	uint64_t process;
	char name[KVPIPE_MAX_NAME + 1];
	bool home;              /* the items are here: it sends (pipe) or owns (lookup buffer) */
	bool lookup;
	uint64_t capacity;
	kvpipe_t *kv;           /* its session; NULL once closed */
	uint64_t bind;          /* user_data of its BIND */

	kvpipe_t *parent;       /* links: under the process lock */
	struct kv_end *prev, *next;

	pthread_mutex_t gate;   /* guards the next three lines: the calls that are inside */
	pthread_cond_t idle;
	uint32_t users, refs;
	bool closing, finished;

	pthread_mutex_t pump;   /* held to post GETs and to set the pool up */
	struct kv_pool *pool;   /* NULL: no arena yet; written under pump and lock */
	struct kv_pool *made;   /* an arena that the daemon has not confirmed: the next attempt goes on with it */
	kvpipe_region_t region; /* the arena's; 0: not registered yet */

	/* under the session's lock */
	struct kv_eop **chunks; /* of operations; end_ops.c has their size */
	uint32_t nchunks, free_op, nops;
	bool over;              /* nothing more comes: reason and text say why */
	enum kvpipe_reason reason;
	char text[KV_TEXT];
	bool (*ready)(struct kv_end *e);  /* whether the fd is to be readable */

	/* home: put.c */
	uint64_t used;          /* bytes not yet received */
	uint32_t items;
	uint64_t sent;          /* number of the last PUT */
	struct kv_flush *flushes;
	uint64_t wanted_bytes;  /* what a try found no room for; of several, the smallest */
	uint32_t wanted_blocks;
	bool wants;
	int64_t look;           /* when the helper looks at completions, too; 0: it does not */
	uint32_t lost;          /* entries that were not accepted, not told yet; reason and text are the last one's */

	/* receiving: get.c, got.c */
	struct kv_get *shorts;  /* those that need room, in order */
	uint32_t nshorts;
	struct kv_get *queued, *queued_last; /* those that wait for an operation, in order */
	uint64_t order;
	uint32_t ahead;         /* blocks given to GETs ahead, which may never be needed */
	uint32_t share;         /* blocks: the limit of those ahead, and of those lent to messages */
	uint32_t both;          /* blocks: the limit of the two together */
	uint64_t hint;          /* bytes of an item, as recent ones had */
	uint64_t *declines;     /* items to give back */
	uint32_t ndeclines;
	uint64_t *cancels;      /* operations that nobody wants any more, and whose CANCEL found no room */
	uint32_t ncancels;
	uint32_t ended;         /* GETs that have ended and are not collected yet */
};

struct kv_end_opts {
	const char *what;       /* for errors */
	uint32_t kind;          /* enum kvpipe_bind_kind */
	const char *name;
	uint64_t capacity;
	const void *token;
	uint32_t token_len;
	const char *peer;
	int64_t linger_ns;
	bool (*ready)(struct kv_end *e);
};

/* Opens e, which is the first field of a struct that its owner allocated, zeroed. Frees that struct on failure. */
int kv_end_open(kvpipe_t *parent, const struct kv_end_opts *o, struct kv_end *e);
int kv_end_enter(struct kv_end *e, const char *what);
void kv_end_leave(struct kv_end *e);
void kv_end_ref(struct kv_end *e);
/* The owner's close: ends the calls of others, then the session. Waits for the daemon until the deadline. */
void kv_end_finish(struct kv_end *e, int64_t deadline);
/* For a call that could not enter because the end is closing: returns when the session of the end is over. From then on nothing is
 * written anywhere. */
void kv_end_await(struct kv_end *e);
void kv_end_unref(struct kv_end *e);  /* the last one frees the struct that it is the first field of */
int kv_end_timeout(const char *what, int64_t timeout_ns, int64_t *deadline);
/* These need the session's lock. */
void kv_end_over(struct kv_end *e, enum kvpipe_reason reason, const char *text);
int kv_end_error(struct kv_end *e, const char *what); /* 0, or why nothing more comes */
/* An error of that reason, with the text and, unless the text has it already, the end's name. */
int kv_end_says(const struct kv_end *e, enum kvpipe_reason reason, const char *what, const char *text);
bool kv_end_wait(struct kv_end *e, bool (*when)(void *arg), void *arg, int64_t deadline);
void kv_end_look(struct kv_end *e); /* takes new completions off the ring; called before a condition is tested */

void kv_end_nap(struct kv_end *e);    /* sleeps KV_NAP_NS without the lock, so that the daemon need not wake it; then looks */
void kv_end_unlock(struct kv_end *e); /* after a look: wakes those whose wait is over, and lets go of the lock */

struct kv_eop *kv_eop_find(const struct kv_end *e, uint64_t id);
void kv_eops_drop(struct kv_end *e);
struct kv_eop *kv_eop_new(struct kv_end *e, uint8_t opcode); /* NULL: the table is full, or there is no memory */
void kv_eop_free(struct kv_end *e, struct kv_eop *op);       /* and its blocks */
uint32_t kv_eop_limit(const struct kv_end *e);
void kv_end_completion(struct kv_end *e, const struct kvpipe_cqe *c);
/* Makes op visible to the daemon, by deadline; on failure op is still the caller's. Called without lock. *id: op's id. */
int kv_end_submit(struct kv_end *e, struct kv_eop *op, const struct kv_record *r, int64_t deadline, uint64_t *id);
/* Submits a CANCEL or a SEAL and waits for its answer (of a CANCEL, until the end is over). Returns its status, or an error. */
int kv_end_ask(struct kv_end *e, const char *what, uint8_t opcode, uint64_t target, int64_t deadline);
/* Waits until the daemon has seen all that was submitted before; negative: an error. */
int kv_end_sync(struct kv_end *e, const char *what, int64_t deadline);
/* Submits a CANCEL, and does not wait for its answer. One that finds no room by the deadline is kept. */
void kv_end_cancel(struct kv_end *e, uint64_t target, int64_t deadline);
/* Submits the CANCELs that were kept, as far as there is room now. Called and returns with lock. */
void kv_end_cancel_late(struct kv_end *e);

/* ---- the arena of an end (arena.c) ---- */
/* Make the arena, and register it with the layout over it. Both need pump, unless nobody knows the end yet. */
int kv_end_make(struct kv_end *e, uint64_t bytes, uint64_t capacity);
int kv_end_tell(struct kv_end *e, int64_t deadline);
/* Both: once, and again after TIMEOUT. However long the memory takes, the daemon has a second after that. */
int kv_end_furnish(struct kv_end *e, uint64_t bytes, uint64_t capacity, int64_t deadline);
void kv_end_drop_made(struct kv_end *e); /* frees what a failed attempt has left */

/* ---- sending (put.c) ---- */
struct kv_put {
	const char *what;
	uint32_t form;
	const struct kvpipe_tensor *members[KV_MEMBERS];
	uint32_t count;
	const void *key;
	uint32_t key_len;
	const uint32_t *tokens;
	uint32_t ntokens;
	struct kv_answer *answer; /* filled if the daemon refuses the put before kv_put_forget(); NULL: it then counts as lost */
	int64_t deadline;     /* of a call that has waited for something else before; 0: its time begins now */
};
int kv_end_put(struct kv_end *e, const struct kv_put *p, int64_t timeout_ns);
void kv_put_forget(struct kv_end *e, const struct kv_answer *answer);
void kv_put_done(struct kv_end *e, struct kv_eop *op, const struct kv_done *d); /* needs lock */
bool kv_put_ready(struct kv_end *e);

/* ---- lookup buffers (lookup.c) ---- */
struct kv_end *kv_lookup_enter(kvpipe_lookup_t *l, const char *what, bool home, int *err); /* NULL: *err */

/* ---- receiving (get.c, got.c) ---- */
/* What a query says whose time passed before the daemon took it. */
#define KV_CROWD "its time passed while as many queries as the daemon takes were under way: free some that wait in vain"

enum kv_get_state { KV_GET_NONE, KV_GET_QUEUED, KV_GET_ASKED, KV_GET_SHORT, KV_GET_LANDED, KV_GET_FAILED };

struct kv_get {
	enum kv_get_state state;
	uint64_t op;           /* ASKED: its operation */
	uint64_t order;        /* among those that need room: lowest first */
	uint64_t item, bytes, capacity, matched; /* SHORT: what the daemon said of the item */
	int64_t deadline;      /* until when it is wanted */
	bool again;            /* it was SHORT, and was asked for again with room */
	struct kv_get *next;   /* in shorts or queued */
	struct kv_ask *kept;   /* QUEUED: what to ask for */
	kvpipe_msg_t *msg;     /* LANDED */
	enum kvpipe_reason reason; /* FAILED, as is the text */
	bool lost;             /* FAILED: an item came, and the caller cannot have it */
	char text[KV_TEXT];
};

struct kv_ask { /* what to ask for */
	uint32_t match;
	uint64_t seq;
	const void *key;
	uint32_t key_len;
	const uint32_t *tokens;
	uint32_t ntokens;
};
/*
 * Submits a GET for g (state NONE), with room for an item like the recent ones if there is some. When the daemon takes no
 * more for now, a query's GET is queued, and kv_get_pump() submits it later. Needs pump.
 */
int kv_get_ask(struct kv_end *e, struct kv_get *g, const struct kv_ask *a, bool front, int64_t deadline);
/*
 * Until when a caller with that deadline waits for the daemon in kv_get_pump(): 1 to 5 s from now. It is computed before
 * pump is taken. So threads that wait for pump wait for the daemon at the same time, not one after the other.
 */
int64_t kv_get_patience(int64_t deadline);
/* Asks again, with room, for what needs it, as far as there is room (making the pool if there is none); then submits what is
 * queued. KV_LATER: the daemon took nothing for a second, as kvpipe_last_error() says; what is left waits for
 * the next call. That the end is over is no error here: whoever looks next finds it, and why. Needs pump. */
#define KV_LATER 1
int kv_get_pump(struct kv_end *e, int64_t patience);
bool kv_get_pumpable(struct kv_end *e); /* kv_get_pump() has something to do; needs lock */
uint32_t kv_get_share(struct kv_end *e); /* blocks that GETs may have ahead now; the end has an arena; needs lock */
void kv_get_unqueue(struct kv_end *e, struct kv_get *g); /* g is QUEUED; needs lock */
/* The ends of GETs (got.c). All need lock. */
void kv_get_fail(struct kv_end *e, struct kv_get *g, enum kvpipe_reason reason, const char *text);
void kv_get_decline(struct kv_end *e, uint64_t item); /* kv_get_pump() gives it back */
void kv_get_enqueue(struct kv_end *e, struct kv_get *g); /* g is SHORT: kv_get_pump() asks again for its item */
void kv_get_done(struct kv_end *e, struct kv_eop *op, const struct kv_done *d);
int kv_get_end(struct kv_end *e, struct kv_get *g, const char *what, kvpipe_msg_t **out); /* collects a LANDED or FAILED one */
void kv_get_forget(struct kv_end *e, struct kv_get *g, uint64_t *cancel); /* its owner goes away; *cancel: the operation to cancel */

#endif
