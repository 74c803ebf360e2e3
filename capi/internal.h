/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - what the files of libkvpipe share.
 *
 * Threads. These are all the locks of the library. They are taken in this order, never the other way round, and no
 * thread holds locks of two sessions:
 *   process      (fork.c) what all sessions share: the ends opened on each, the list of adopted memory; only a gate is
 *                taken under it
 *   gate         of an end (endpoint.h): counts the calls inside; nothing is taken under it
 *   pump         of an end: held to post GETs or to set up the pool, also while the daemon is asked or has no room
 *   layout_lock  held while a layout is set, until the daemon has answered
 *   sq.lock      the submission queue and the record arena; held while a record is written
 *   lock         operations, completions, waiters, the session's state; held briefly, never across a system call that
 *                can block
 *   pool.lock    the blocks of an end's pool, some of which are lent to messages; nothing is taken under it
 *   ctl.in_use   the control socket's descriptor. Held shared by a thread that sends a request: it may wait until the
 *                daemon reads, and takes only ctl.lock meanwhile. Held exclusively by the helper while it replaces the
 *                socket; the old socket's daemon is dead then, so no sender waits there
 *   ctl.lock     requests on the control socket that await their answer; nothing is taken under it
 * A session has one thread of its own, the helper (helper.c). It alone reads the control socket after the WELCOME, and it
 * alone comes back to a daemon that was restarted. Only the helper changes rings, under sq.lock and lock.
 */
#ifndef KVPIPE_INTERNAL_H
#define KVPIPE_INTERNAL_H

#include <kvpipe.h>
#include <kvpipe/barrier.h>
#include <kvpipe/ring.h>

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#define KV_MS 1000000ll
#define KV_SEC 1000000000ll
#define KV_CALL_NS (5 * KV_SEC)      /* default timeout of calls that wait for an answer */
#define KV_OP_NS (30 * KV_SEC)       /* default timeout of operations, and default lease */
#define KV_ROOM_NS (100 * KV_MS)     /* how long a submission waits for room */
#define KV_GRACE_NS (500 * KV_MS)    /* what the daemon is given beyond a deadline before the library acts */
#define KV_HOUR_NS (3600 * KV_SEC)   /* longest time of takes, watches and drops */
#define KV_MONTH_NS (30ll * 86400 * KV_SEC) /* the daemon refuses longer times */
#define KV_FOREVER_NS (30 * KV_SEC)  /* how long KVPIPE_FOREVER waits past an operation's deadline */
#define KV_MAX_RECORDS 65536u        /* operations not yet given to kvpipe_op_free(), at most; and small ones that add to offers */
#define KV_BUCKETS 1024u             /* of the table of operations */
#define KV_NO_SLOT 0xffffffffu
#define KV_TEXT 512u                 /* bytes of an error text, its NUL included */

#define KV_COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- time (time.c) ---- */
int64_t kv_now(void);                             /* CLOCK_MONOTONIC */
int64_t kv_after(int64_t start, int64_t ns);      /* start + ns, at most INT64_MAX */
struct timespec kv_timespec(int64_t ns);
void kv_cond_init(pthread_cond_t *cond);          /* its deadlines are such times */
/* A time for people to read: "50 ms", "1.5 s", "30 days". Returns to. KV_SPAN()'s text lasts as long as the block around it. */
const char *kv_span(char to[32], int64_t ns);
#define KV_SPAN(ns) kv_span((char[32]){ 0 }, ns)
/* The ending of "item" after a count. */
#define KV_PLURAL(n) ((n) == 1 ? "" : "s")
/* What to check when the daemon is there but silent. */
#define KV_LOOK "is it stopped, or short of CPU? its log and \"kvpipectl doctor\" say more"
/* When it was this process that let the time go by. */
#define KV_UNASKED "its time was over before the daemon was asked: call again"

/* ---- errors, and cancellation (thread.c) ---- */
/* Keeps the text for kvpipe_last_error() and returns -reason. */
int kv_err(enum kvpipe_reason reason, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
#ifdef __clang_analyzer__ /* it cannot know that a reason is never 0 */
#define kv_err(reason, ...) ((kv_err)(reason, __VA_ARGS__), -(int)(reason))
#endif
/* Memory of the calling thread that lives until its next kv_thread_reset(). NULL: out of memory. */
void *kv_thread_alloc(size_t size);
void kv_thread_reset(void);

/*
 * Every call that waits or makes system calls begins with this, before it takes a lock or memory. A thread that is
 * cancelled inside the call ends after it, and so leaves no lock held and nobody waiting.
 */
#define KV_UNCANCELLED __attribute__((cleanup(kv_cancellable_again))) int kv_cancellable = kv_uncancellable()
int kv_uncancellable(void);
void kv_cancellable_again(int *was);

/* Writes n random bytes to `to`. False: the kernel has none. */
bool kv_random(void *to, size_t n);

/* ---- fork (fork.c) ---- */
uint64_t kv_process_mark(void);       /* differs between a process and its forked children; never 0 */
bool kv_process_is(uint64_t mark);
/* Guards what all sessions of the process share. Held for a moment: nothing waits under it. It is free in a forked child.
 * Callers have called kv_process_mark() before. */
void kv_process_lock(void);
void kv_process_unlock(void);

/* ---- arguments (args.c) ---- */
/* Copies the caller's sized struct into ours. Fields that the caller's version lacks are zero. */
int kv_copy_opts(const char *what, const void *user, void *ours, size_t size);
/* Copies our struct to the caller's, which may be shorter or longer. type: the struct's name, for the message. */
int kv_copy_out(const char *what, const char *type, void *user, void *ours, size_t size);
int kv_check_zero(const char *what, const uint64_t *reserved, size_t n);
int kv_check_timeout(const char *what, int64_t *ns, int64_t def); /* replaces 0 by def */
/* The same for takes, watches and drops; cuts times above an hour (up to 30 days) to an hour. The daemon does so, too, but it may
 * be away, or be replaced by another: cut here, the hour counts once. */
int kv_check_deadline(const char *what, int64_t *ns, int64_t def);
int kv_check_bytes(const char *what, const void *p, size_t len, size_t min, size_t max);
int kv_check_text(const char *what, const char *s, size_t max, size_t *len); /* NULL counts as empty */

/* ---- rings ---- */
struct kv_rings {
	struct kvpipe_ring_c *c; /* the index pages, mapped by themselves */
	const struct kvpipe_ring_d *d;
	uint8_t *all_c;          /* the whole memfds */
	const uint8_t *all_d;
	size_t c_bytes, d_bytes;
	struct kvpipe_sqe *sqes;
	const struct kvpipe_cqe *cqes;
	uint8_t *records;
	const uint8_t *results;
	const struct kvpipe_layer_slot *layers;
	uint32_t sq_entries, cq_entries, record_bytes, result_bytes, layer_slots;
	int sq_event, cq_event;
};

/* Checks the daemon's WELCOME and maps its rings. Takes over the four fds, also on failure. */
int kv_rings_map(struct kv_rings *r, const struct kvpipe_welcome *w, const int fds[4]);
/*
 * Replaces the rings in r by those of another daemon, and unmaps the old ones. The index pages keep their addresses, and
 * the submission eventfd its number: a thread that looks without a lock sees either the old ones or the new. The caller
 * holds sq.lock and lock, and nobody sleeps on the completion eventfd.
 */
int kv_rings_replace(struct kv_rings *r, struct kv_rings *by);
void kv_rings_unmap(struct kv_rings *r);

/* ---- submission ---- */
struct kv_sq {
	pthread_mutex_t lock;
	uint32_t tail;        /* next entry */
	uint32_t head;        /* sq_head as last seen */
	uint64_t used, freed; /* arena: free-running ends of the part taken and of the part free again */
	uint64_t *ends;       /* of each entry: `used` after its record */
	uint32_t rung;        /* need_wakeup when the bell was last rung: which sleep of the daemon */
};

/* Reads the daemon's sq_head and frees the records that it has passed. False: the index is impossible. */
bool kv_sq_refresh(struct kv_sq *sq, const struct kv_rings *r);
/* Finds room for a record of at most size bytes. *off: its free-running offset. False: no room now. */
bool kv_arena_reserve(const struct kv_sq *sq, const struct kv_rings *r, uint64_t size, uint64_t *off);
void kv_arena_commit(struct kv_sq *sq, uint64_t off, uint64_t size); /* takes as much of it as the record needed */

/* One block list; dst has room for kv_blocks_bound(). Returns the bytes written, a multiple of 8. */
size_t kv_blocks_bound(const struct kvpipe_blocks *b);
size_t kv_blocks_encode(uint8_t *dst, const struct kvpipe_blocks *b);
int kv_blocks_check(const kvpipe_t *kv, const struct kvpipe_blocks *blocks, uint32_t n, uint64_t *groups);

struct kv_string {
	const void *p;
	size_t len;
};

/* A submission, complete but for its place in the queue. */
struct kv_submission {
	uint8_t opcode;
	uint64_t target;
	uint64_t tag;
	int64_t timeout_ns;
	bool lets_daemon; /* the daemon chooses the time; timeout_ns only sets the library's own deadline */
	const void *head; /* the record's fixed part, or NULL: no record */
	size_t head_len;
	struct kv_string strings[5];
	const struct kvpipe_blocks *blocks;
	uint32_t nblocks;
};

/*
 * A submission in two parts. kv_sq_begin() waits until the deadline for room for entry and record, and returns with
 * sq.lock held and the record's place in *off. kv_sq_publish() makes both visible and unlocks; a caller that changes its
 * mind in between unlocks instead.
 */
int kv_sq_begin(kvpipe_t *kv, uint8_t opcode, size_t size, int64_t deadline, uint64_t *off);
void kv_sq_publish(kvpipe_t *kv, struct kvpipe_sqe *e, uint64_t off);

/* A submission as it was encoded, kept so that it can be sent to the next daemon. */
struct kv_saved {
	struct kv_saved *next;
	uint32_t len;
	uint8_t opcode;
	_Alignas(8) uint8_t record[];
};

struct kv_saved *kv_saved_new(uint8_t opcode, size_t size); /* NULL: out of memory */
struct kv_saved *kv_saved_key(struct kv_saved *offer);      /* keeps of an offer's record only the key */
void kv_saved_free(struct kv_saved *list);

struct kv_op;
/* Takes op over, also on failure, and makes the submission visible to the daemon. Waits at most KV_ROOM_NS for room.
 * While the daemon is away, the submission is kept for the next one. */
int kv_submit(kvpipe_t *kv, const struct kv_submission *s, struct kv_op *op, kvpipe_op_t *id);
int kv_layer_slot(kvpipe_t *kv, struct kv_op *op);               /* gives a take a layer slot; needs lock */
void kv_publish(kvpipe_t *kv, const struct kvpipe_sqe *e);       /* puts an entry into the queue; needs sq.lock, and room */
void kv_ring_bell(kvpipe_t *kv);                                 /* wakes the daemon if it sleeps; needs sq.lock */

/* ---- operations and completions ---- */
struct kv_blob { /* a completion's result, copied from the ring */
	uint32_t nfailed, text_len;
	struct kvpipe_run runs[]; /* then the text and a NUL */
};

struct kv_note { /* one completion of an operation, queued for kvpipe_poll() or not */
	struct kv_note *prev, *next;
	struct kv_op *op; /* NULL: the completion is foreign and no longer in a ring, and the note is on the heap */
	uint64_t order;   /* position among the ring's completions */
	bool queued, all_failed;
	const char *text; /* static; used when the blob has no text, or there is no blob */
	struct kv_blob *blob;
	struct kvpipe_completion c;
};

enum kv_op_state { KV_RUNNING, KV_ENDED, KV_RELEASED };

struct kv_op {
	struct kv_op *hash_next;
	struct kv_op *live_prev, *live_next; /* list of those not released yet */
	uint64_t id;      /* user_data */
	uint64_t target;  /* what it acts on, or 0 */
	uint64_t tag;
	struct kv_saved *record;           /* what was submitted; once it has ended: an offer's key, else NULL */
	struct kv_saved *more, **more_end; /* of an offer: its accepted extensions, in order */
	struct kv_saved *next_more;        /* the next extension to send again */
	uint64_t groups;  /* bit n: it names block group n */
	int64_t timeout_ns, deadline; /* the helper acts at deadline */
	uint32_t sq_index, layer_slot;
	uint32_t end_waiters, release_waiters;
	uint32_t token_len;
	uint8_t opcode, state;
	bool lets_daemon; /* as in kv_submission */
	bool internal;    /* kvpipe_poll() never shows it: mostly a small operation, whose caller waits (small.c) */
	bool abandoned;   /* no caller waits for it any more */
	bool detached;    /* it was given to kvpipe_op_free() */
	bool waited;      /* kvpipe_wait() has reported its end, or had no memory for it and left it to kvpipe_poll() */
	bool layered;     /* a take that reports its layers */
	bool local_end;   /* ended by the library: the daemon's later word counts as RELEASED */
	bool begun, sent; /* this daemon's ring has its record (begun), and all its extensions (sent) */
	bool again;       /* internal: an extension that is sent again */
	bool notice;      /* internal: has the next daemon report a take as failed(restarted), and nothing else */
	bool withdrawn;   /* its cancel or withdrawal was under way when the daemon went */
	bool spoiled;     /* an offer that this daemon did not take whole: still to be withdrawn there and ended here */
	uint8_t token[KVPIPE_MAX_TOKEN];
	struct kv_note end, quarantine, release;
};

struct kv_op *kv_op_new(uint8_t opcode);
void kv_op_destroy(struct kv_op *op);
/* The functions from here on need kv->lock. */
struct kv_op *kv_op_find(const kvpipe_t *kv, uint64_t id);
int kv_op_insert(kvpipe_t *kv, struct kv_op *op, uint64_t *id);
void kv_op_remove(kvpipe_t *kv, struct kv_op *op);   /* and destroys it */
/* Whether the next daemon is to hear of an operation. It does not of those that act on one which has ended. */
bool kv_ops_wait(const kvpipe_t *kv);
void kv_op_end(kvpipe_t *kv, struct kv_op *op, const struct kvpipe_completion *c, struct kv_blob *blob, const char *text);
void kv_op_end_here(kvpipe_t *kv, struct kv_op *op, enum kvpipe_reason reason, const char *text, bool more); /* copies text */
void kv_op_cancel_here(kvpipe_t *kv, struct kv_op *op); /* at its owner's wish, while no daemon knows it */
void kv_op_quarantine(kvpipe_t *kv, struct kv_op *op, const struct kvpipe_completion *c, struct kv_blob *blob);
void kv_op_release(kvpipe_t *kv, struct kv_op *op, const struct kvpipe_completion *c, struct kv_blob *blob);
void kv_op_release_here(kvpipe_t *kv, struct kv_op *op); /* the daemon that would say so is gone */

/* The error of a call that adds to an offer which has ended, or whose session has; else 0. Takes lock itself. */
int kv_offer_ended(kvpipe_t *kv, const char *what, kvpipe_op_t id);
/* An extension or seal has ended. From now on it is part of its offer; or it was sent again and refused, and spoils it. */
void kv_op_answered(kvpipe_t *kv, struct kv_op *op, bool done);

void kv_note_push(kvpipe_t *kv, struct kv_note *n);
/* Copies the foreign completions that are still in the ring, before the ring goes. */
void kv_notes_keep_foreign(kvpipe_t *kv);
/* Notes that a foreign completion was handed out. If it promised RELEASED, the caller gets that whatever becomes of the daemon. */
void kv_owe_foreign(kvpipe_t *kv, const struct kvpipe_completion *c);
void kv_notes_settle_foreign(kvpipe_t *kv); /* the daemon is gone: queues each RELEASED that is owed */
void kv_notes_renumber(kvpipe_t *kv); /* there is a new ring: all notes are older than anything in it */
void kv_note_free_foreign(struct kv_note *n);
void kv_note_drop(kvpipe_t *kv, struct kv_note *n);
const char *kv_note_text(const struct kv_note *n); /* lasts as long as the note */
/* Fills in what the caller sees. False: out of memory. */
bool kv_note_deliver(const struct kv_note *n, struct kvpipe_completion *out);

/* Checks a completion's result; -1: malformed. *size: bytes of its kv_blob. */
int kv_result_check(const struct kv_rings *r, const struct kvpipe_cqe *e, struct kvpipe_result *head, size_t *size);
void kv_result_fill(const struct kv_rings *r, const struct kvpipe_cqe *e, const struct kvpipe_result *head,
		    struct kv_blob *blob);
struct kvpipe_completion kv_completion(const struct kvpipe_cqe *e);

void kv_drain(kvpipe_t *kv);               /* takes everything new off the completion queue; needs lock */
void kv_advance(kvpipe_t *kv);             /* moves cq_head to the oldest foreign completion; needs lock */
void kv_settle(kvpipe_t *kv);              /* makes kvpipe_fd() agree with what can be collected; called before lock is let go */

/* ---- waiting ---- */
enum kv_wait_kind { KV_WAIT_END, KV_WAIT_RELEASED, KV_WAIT_LAYER, KV_WAIT_CANCEL, KV_WAIT_WHEN };

struct kv_waiter {
	struct kv_waiter *prev, *next;
	pthread_cond_t cond;
	uint64_t op;
	uint64_t target;      /* CANCEL: the operation to end; op is the CANCEL itself */
	uint32_t layers;      /* LAYER: how many must be ready */
	enum kv_wait_kind kind;
	bool (*when)(void *arg); /* WHEN: the condition that is to become true */
	void *arg;
};

/* Waits until what w names has happened (true) or the deadline has passed (false). Called and returns with lock. */
bool kv_wait_until(kvpipe_t *kv, struct kv_waiter *w, int64_t deadline);
void kv_wake_waiters(kvpipe_t *kv);        /* those whose wait is over; needs lock */

/* ---- control socket ---- */
struct kv_pending {
	struct kv_pending *next;
	pthread_cond_t cond;
	uint32_t seq;
	uint16_t type;
	bool done, orphan;   /* orphan: its caller gave up, and this is on the heap */
	bool lost;           /* the daemon went before it answered */
	struct kvpipe_ack ack;
	char text[KV_TEXT];
};

struct kv_ctl {
	int fd;              /* replaced by the helper alone */
	pthread_rwlock_t in_use; /* held shared while a thread sends */
	pthread_mutex_t lock;    /* all below */
	uint32_t seq;
	uint64_t life;       /* of the daemon at the other end; 0: none is there */
	struct kv_pending *pending;
};

/* UNAVAILABLE: the daemon has closed the connection. QUOTA: it is this side that cannot send. */
int kv_ctl_send(int sock, uint16_t type, uint32_t seq, const void *body, size_t len, int fd, int64_t deadline);
struct kv_message {
	struct kvpipe_ctl head;
	uint8_t *body;       /* KVPIPE_CTL_MAX bytes of the caller's */
	int fds[4];
	int nfds;
	bool full; /* after KV_RECV_BAD: descriptors were lost, as this process may open no more files */
};
#define KV_RECV_EOF (-1)
#define KV_RECV_BAD (-2)
/* 1: a message; 0: none before the deadline; or one of the above. Deadline 0: does not wait. */
int kv_ctl_recv(int sock, struct kv_message *m, int64_t deadline);
void kv_ctl_close_fds(struct kv_message *m);
/* Reads the ack in a message, and its text, NUL-terminated, into text. False: malformed. */
bool kv_ctl_ack(const struct kv_message *m, struct kvpipe_ack *ack, char text[KV_TEXT]);
/*
 * Sends a request to the daemon of that life and waits for its ack. A refusal becomes the caller's error, with "what: "
 * before its text. KV_LOST: that daemon is gone, and whatever it did with the request is void: ask the next one.
 */
#define KV_LOST (-1000)
int kv_request(kvpipe_t *kv, const char *what, uint64_t life, uint16_t type, const void *body, size_t len, int fd,
	       int64_t deadline, uint64_t *value);
/* Waits for a daemon; 0: *life is its life. A session that is over is no error: its daemon still fences, or *life is 0. */
int kv_await_daemon(kvpipe_t *kv, const char *what, int64_t deadline, uint64_t *life);
/* The same for what a daemon that only fences would not answer any more: a session that is over is an error. */
int kv_await_session(kvpipe_t *kv, const char *what, int64_t deadline, uint64_t *life);
int kv_await_untold(kvpipe_t *kv, const char *what, int64_t deadline); /* until `told` is false; needs lock */
/* Shuts our side of sock, and waits until the deadline for the daemon's end of file, which says that it has fenced. */
void kv_await_fence(int sock, int64_t deadline);
uint32_t kv_ctl_next_seq(kvpipe_t *kv);
void kv_ctl_answer(kvpipe_t *kv, const struct kv_message *m);
void kv_ctl_lose_all(kvpipe_t *kv); /* the connection is gone */

/* ---- the session ---- */
enum kv_state {
	KV_LIVE,
	KV_LEAVING, /* the daemon is stopping, and fences; the session waits for the next one */
	KV_AWAY,    /* end of file: nothing touches the memory; the helper looks for the next daemon */
	KV_REPLAY,  /* the next daemon is there, and is told what the last one knew; new submissions queue behind that */
	KV_BYE,     /* the daemon ended the session, but still fences */
	KV_BROKEN,  /* the daemon broke the protocol: we hung up, but it still fences */
	KV_GONE,    /* over: nothing touches the memory any more */
};

/* Enters the session's list under lock, and only while the daemon that accepted it is still there. So the helper may walk the
 * list without the lock while it comes back to another daemon. */
struct kv_region {
	struct kv_region *next;
	kvpipe_region_t id;     /* the caller's name for it; no other region of the session ever has it */
	kvpipe_region_t remote; /* the present daemon's name for it; under lock */
	struct kvpipe_register body;
	int fd;
	void *addr;       /* NULL: the caller's own mapping */
	size_t mapped;
	bool adopted;     /* the mapping stays the program's */
	bool gone;        /* unregistered while no daemon took the session: only the helper still knows it; under lock */
	/* sleep.c; under lock */
	bool invalid;     /* its memory is away */
	bool told;        /* `invalid`, as it was when the helper told the daemon that it is coming back to */
	bool napped;      /* its memory was away at a time when no daemon had the session */
	bool wakes;       /* the helper has yet to tell the daemon that it is coming back to of the memory; the helper's own */
	bool unsure;      /* the present daemon may see that differently: its answer did not come in time */
	bool changing;    /* a thread invalidates, revalidates or unregisters it: no other thread does, and it stays listed */
};

struct kv_layout { /* one allocation */
	uint32_t nviews, nfields;
	const struct kvpipe_view *views; /* with the caller's region ids */
	const struct kvpipe_field *fields;
};

struct kv_layer {
	uint32_t layer;
	uint64_t groups;
};

#define KV_UNFENCED 4u /* so many are kept; then no other daemon is asked until one of them has fenced or is dead */

struct kv_helper {
	pthread_t thread;
	bool started;
	void *body;       /* KVPIPE_CTL_MAX bytes for what is read */
	int wake;         /* eventfd */
	int64_t target;   /* when it looks at deadlines again; under lock */
	bool stop;        /* under lock */
	bool kicked;      /* atomic: there is something to send */
	bool reading;     /* atomic: it may have something in hand that it has read from the socket */
	uint32_t ping;    /* sequence number of the PING under way, or 0; helper only */
	int64_t ping_end;
	bool telling;     /* the daemon that it is coming back to was told of memory; helper only */
	uint32_t nunfenced;
	int unfenced[KV_UNFENCED]; /* unfenced.c; helper only */
};

struct kv_end;

struct kvpipe {
	uint64_t process;
	/* constant from kvpipe_connect() on */
	struct kv_end *end;     /* the end whose session this is; NULL: a session of the caller's. It and the end are under lock */
	struct kv_end *ends;    /* opened on this session; under the process lock */
	struct kvpipe_hello hello; /* with the instance that the daemon chose; session and secret belong to the helper */
	char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 1], instance[129];
	uint32_t role, rank, max_ids, max_views;
	/* as the present daemon says; under lock */
	const struct kv_names *names; /* atomic */
	uint32_t abi, epoch, max_regions, max_inflight;
	uint64_t features, ops, says, max_pinned_bytes;
	struct kv_rings rings;
	int epoll, ready;       /* kvpipe_fd() = epoll over the cq eventfd and this eventfd */

	struct kv_sq sq;
	struct kv_ctl ctl;
	struct kv_helper helper;

	struct kv_region *regions, **regions_end;

	pthread_mutex_t layout_lock;
	uint64_t torn; /* life of the daemon that may have the beginning of a layout; needs layout_lock */
	struct kv_layer *layers; /* ascending; set once, under lock */
	uint32_t nlayers;
	uint64_t drawn;          /* counts the region ids that the library made up; under lock */
	struct kv_layout *layout; /* set once, under lock */

	uint64_t progress;      /* atomic: the highest that the caller gave */
	uint64_t take_id;       /* atomic: the last one drawn */
	uint64_t beat;          /* atomic: the daemon's heartbeat, and when it was last seen to change */
	int64_t beat_seen;

	pthread_mutex_t lock;   /* all below */
	int state;              /* enum kv_state; atomic, written under lock */
	bool closing;           /* it is being closed: no other daemon is looked for */
	int64_t close_by;       /* until when closing waits for fences; set once, with closing */
	bool curt;              /* the daemon does not answer: closing does not tell it, nor wait for its fence */
	bool spoiled;           /* some offer is spoiled */
	enum kvpipe_reason end_reason;
	char end_text[KV_TEXT];
	uint32_t refused;       /* AWAY: why a daemon does not take the session, or is not reached; 0: none is there */
	char refusal[KV_TEXT];  /* the text of the last such reason */
	bool told;              /* a daemon was told of memory, and has neither taken the session nor fenced; set by the helper */
	uint64_t next_id;
	struct kv_op *buckets[KV_BUCKETS];
	struct kv_op *live, *live_last; /* not released, oldest first */
	struct kv_op *unsent;   /* unless LIVE: the oldest that may have to be sent to the next daemon */
	uint64_t life;          /* counts the daemons that the session has had */
	pthread_cond_t back;    /* signals that state or told has changed, or that the sleeper has left */
	uint32_t records, small, inflight; /* operations in the table, those of them that are internal, and those not released of the others */
	uint32_t *slots;        /* free layer slots, a stack */
	uint32_t nslots;
	uint64_t seen;          /* atomic: completions taken off the ring, free-running */
	uint64_t cq_head;       /* as published, free-running */
	struct kv_note *first, *last; /* for kvpipe_poll() */
	uint32_t queued;
	struct kv_note *owed;   /* the RELEASED completions that foreign operations still get, ready to be queued */
	uint32_t pending;       /* atomic: kvpipe_poll() has something, whatever is in the ring */
	bool fd_used;           /* atomic: kvpipe_fd() was asked for */
	bool ready_set;
	bool fresh;             /* something was queued since `ready` was last rung */
	bool rung;              /* the cq eventfd woke the last sleeper, which did not clear it */
	uint32_t sleep;         /* number of the last sleep, as the daemon was told in cq_waiting */
	bool swapping;          /* nobody may sleep on the cq eventfd: it is about to be replaced */
	struct kv_waiter *waiters;
	struct kv_waiter *sleeper; /* the one that sleeps on the cq eventfd */
};

/* Where to look for the daemon, in order. */
struct kv_paths {
	const char *named; /* NULL: the usual places; else the path was named: a phrase that says by what, or "" */
	int n;
	char path[2][sizeof(((struct sockaddr_un *)0)->sun_path) + 1];
	int err;           /* why there is no second path, which is said when nobody is at the first; 0: nothing is wrong */
	char why[KV_TEXT]; /* the text of err */
};
/* Sends HELLO as it is to the first path where somebody answers, and makes a session of the answer. */
int kv_session_open(const struct kvpipe_hello *hello, const struct kv_paths *paths, int64_t deadline, kvpipe_t **out);
void kv_close(kvpipe_t *kv, int64_t deadline); /* kvpipe_close(), which waits for fences until the deadline */
void kv_ends_finish(kvpipe_t *parent, int64_t deadline); /* closes the ends opened on parent in the same way */
int kv_enter(const kvpipe_t *kv);            /* 0: this is a session of this process */
int kv_over(kvpipe_t *kv);                   /* kv_ended() for callers without lock */
int kv_ended(kvpipe_t *kv);                  /* the error of a session that has ended, or 0; needs lock */
/* The daemon said BYE or broke the protocol: operations end, but memory is not free yet. Needs lock. */
void kv_session_end(kvpipe_t *kv, enum kv_state state, enum kvpipe_reason reason, const char *text);
void kv_session_over(kvpipe_t *kv, enum kvpipe_reason reason, const char *text); /* nothing touches the memory any more */
void kv_daemon_gone(kvpipe_t *kv);           /* end of file */
bool kv_awaits(int state);                   /* submissions wait for the next daemon */
bool kv_is_over(int state);                   /* the session does not come back */
void kv_set_state(kvpipe_t *kv, enum kv_state state); /* needs lock */

/* ---- coming back (attach.c, install.c, replay.c): the helper's ---- */
enum kv_came { KV_CAME, KV_AGAIN, KV_STOP, KV_OVER };

/* Returns once the session has another daemon, is over (KV_OVER), or is to be closed (KV_STOP). */
enum kv_came kv_reattach(kvpipe_t *kv, struct kv_message *m);
/* Waits for fd (-1: none) and acts on deadlines of operations meanwhile. KV_CAME: fd is readable; KV_AGAIN: the time has come, or
 * there is something to send; KV_STOP: the session is to be closed. */
enum kv_came kv_helper_wait(kvpipe_t *kv, int fd, int64_t until);
/* Daemons that were told of memory and have not fenced (unfenced.c); for the helper alone. */
void kv_untold(kvpipe_t *kv);                        /* sets `told` anew, after an attempt or a fence */
void kv_unfenced_watch(const kvpipe_t *kv, struct pollfd p[KV_UNFENCED]); /* fills p for poll() */
void kv_unfenced_look(kvpipe_t *kv, const struct pollfd p[KV_UNFENCED]); /* drops those that have fenced, after poll() */
bool kv_unfenced_await(kvpipe_t *kv);                /* waits until all have fenced; false: the session is to be closed */
void kv_unfenced_close(kvpipe_t *kv);                /* waits for them until close_by, then forgets them */
/* Checks a WELCOME and maps its rings. */
int kv_welcome(struct kv_message *m, struct kvpipe_welcome *w, struct kv_rings *r);
struct kv_names { /* what a daemon says of itself; kept until the session is closed */
	const struct kv_names *older;
	char node[257], advertise[129], daemon[65];
};
int kv_names_new(const struct kvpipe_welcome *w, struct kv_names **out);
void kv_welcome_apply(kvpipe_t *kv, const struct kvpipe_welcome *w, struct kv_names *n); /* takes n over; needs lock */
/* Makes the lists of queue entries and layer slots anew, all free: without a daemon nobody uses any. Needs sq.lock and lock. */
int kv_furnish(kvpipe_t *kv, const struct kv_rings *r);
/* Makes the new daemon the session's, and takes over its rings and socket. On failure the session is as it was; -CLOSED: it is
 * being closed. */
int kv_install(kvpipe_t *kv, struct kv_rings *rings, const struct kvpipe_welcome *w, int sock);
/* Sends again as much as there is room for. True: nothing is left. */
bool kv_replay(kvpipe_t *kv);
/* Ends the offers that this daemon did not take whole, and once the session is LIVE withdraws them there. False: some are left,
 * for want of room. */
bool kv_withdraw_spoiled(kvpipe_t *kv);
/* kvpipe_set_layout(), by deadline. */
int kv_layout_set(kvpipe_t *kv, const struct kvpipe_view *views, uint32_t nviews, const struct kvpipe_field *fingerprint,
		  uint32_t nfields, int64_t deadline);
bool kv_layout_whole(const kvpipe_t *kv); /* there is one, and all its memory is still registered; needs lock */
/* Sends a layout, in as many messages as it needs. INVALID, with nothing sent: a view names a region that the session lacks. */
int kv_layout_messages(kvpipe_t *kv, const struct kv_layout *l, int (*send)(void *arg, const void *body, size_t len), void *arg);

const struct kv_names *kv_names(const kvpipe_t *kv);
void kv_broken(kvpipe_t *kv, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold)); /* needs lock */

int kv_helper_start(kvpipe_t *kv);
void kv_helper_stop(kvpipe_t *kv);
void kv_helper_before(kvpipe_t *kv, int64_t deadline); /* makes the helper look by then; needs lock */
/* Whether what the daemon said until now may not all have been handed out. Needs ctl.lock, and a request that is not answered, nor
 * lost. */
bool kv_helper_has_more(const kvpipe_t *kv);
void kv_helper_kick(kvpipe_t *kv); /* tells it that there is something to send */
/* Acts on deadlines that have passed, and returns the next one. *ask: an offer's has passed, so the daemon is to be asked. Needs
 * lock. */
int64_t kv_deadlines(kvpipe_t *kv, int64_t now, bool *ask);
void kv_offers_alive(kvpipe_t *kv, bool alive); /* the daemon, asked about overdue offers, has answered or not; needs lock */
/* The daemon is stopping and no longer answers for offers: gives the next one time to learn of them. Needs lock. */
void kv_offers_left(kvpipe_t *kv);

int kv_find_socket(const char *given, struct kv_paths *out);
int kv_find_default(const char *system, struct kv_paths *out); /* where nobody names a socket: the system's, then that of --dev */
extern const char *kv_tmp; /* "/tmp"; tests have one of their own */
/* For paths below /tmp/kvpipe-UID, however they were named. When that directory is missing, anybody can make it. So
 * kv_check_place() checks that it is ours before a daemon is looked for there, and kv_check_listener() checks who answers before
 * anything is said. kvpipectl and the vLLM connector have the same rule. */
int kv_check_place(const char *path);
int kv_check_listener(const char *path, int sock);
/* Connects to the first path where somebody answers. On failure *sock is -errno of the path that the error is about. */
int kv_dial(const struct kv_paths *paths, int64_t deadline, int *sock, const char **path);
bool kv_nobody(int err); /* that errno means that no daemon is there */

/* Shared memory of ours: a sealed memfd, mapped (alloc.c). what: the call, for errors. */
struct kv_memory {
	int fd;
	void *addr;
	size_t mapped; /* nbytes rounded up to whole pages */
	size_t page;
};
int kv_memory_make(const char *what, uint64_t nbytes, uint32_t flags, struct kv_memory *m);
void kv_memory_drop(struct kv_memory *m);

/* For the helper: looks at the completions of an end when it is time, and returns when it will be again (put.c). */
int64_t kv_put_mind(kvpipe_t *kv);

/* ---- memfds (memfd.c) ---- */
/* A memfd that can be sealed; -1: errno. */
int kv_memfd(const char *name, unsigned int flags);
/* An errno in words. If descriptors have run out, they say whose and which limit to raise. */
const char *kv_why(int err);
bool kv_no_files(int err); /* no descriptor is left */
/* Whether a sandbox forbids the system call that failed with err. Only for calls that have no other cause of such an errno. */
bool kv_forbidden(int err);
#define KV_ALLOW(calls) "allow " calls " in this process's sandbox (a container's seccomp profile)"
/* Makes all pages of a memfd, mapped at addr, present; an errno. May zero them: only for memory that nobody uses yet. */
int kv_populate(int fd, void *addr, size_t len, size_t page);

void kv_regions_drop(kvpipe_t *kv, bool unmap);
/* Refuses a scheduler's memory as the daemon would, but before any pages are taken. what: the call, for the message. */
int kv_may_own(const kvpipe_t *kv, const char *what);
int kv_region_add(kvpipe_t *kv, int fd, uint64_t nbytes, void *addr, size_t mapped, kvpipe_region_t *region);
/* kvpipe_mem_register_fd(), by deadline. */
int kv_region_add_fd(kvpipe_t *kv, int fd, uint64_t nbytes, int64_t deadline, kvpipe_region_t *region);
/* Registers what follows the first skip bytes of the mapping. The mapping stays when the region ends. */
int kv_region_add_adopted(kvpipe_t *kv, int fd, uint32_t skip, uint64_t nbytes, void *addr, size_t mapped,
			  kvpipe_region_t *region);
void kv_adopt_end(void *addr, size_t mapped); /* the memory is the program's alone again, on the same file */
void kv_progress_show(kvpipe_t *kv); /* writes it into the ring */
struct kv_region *kv_region_find(const kvpipe_t *kv, kvpipe_region_t id); /* needs lock */
/* Finds a region that no thread is changing; the caller may set `changing` under the same lock, which this needs. NOT_FOUND,
 * BUSY. what: the call, for the message. */
int kv_region_ours(kvpipe_t *kv, const char *what, kvpipe_region_t id, struct kv_region **out);
void kv_region_let_go(kvpipe_t *kv, struct kv_region *r);
void kv_regions_sweep(kvpipe_t *kv);                   /* frees those that are gone; only the helper may, which walks the list without lock */
void kv_regions_woke(kvpipe_t *kv);                   /* the daemon knows of every nap; needs lock */
bool kv_regions_stale(const kvpipe_t *kv);             /* some have gone, or changed validity, since the daemon was told; needs lock */
uint32_t kv_layer_rank(const kvpipe_t *kv, uint64_t groups, uint32_t layer); /* its place among the take's layers, from 1; 0: none */

#define KV_RING_ALWAYS 1u /* in cq_waiting and need_wakeup: ring for everything; higher values: ring once for each value */
void kv_event_signal(int fd);
void kv_event_clear(int fd);

#endif
