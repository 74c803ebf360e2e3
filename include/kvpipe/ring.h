/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpipe/ring.h - the protocol between libkvpipe and kvpiped, for any two neighbouring versions.
 *
 * Control messages travel over a unix socket (SOCK_SEQPACKET). Operations go through two memfds, which the daemon
 * makes and passes with WELCOME:
 *   ring_c  written by the client, mapped read-only by the daemon (sealed SHRINK|GROW|SEAL)
 *   ring_d  written by the daemon, mapped read-only by the client (sealed SHRINK|GROW|FUTURE_WRITE|SEAL before sent)
 *
 * All integers are little endian. Every struct has a fixed size and no implicit padding. Reserved bytes are zero,
 * and the receiver checks that. Indices are free-running u32; entry = index & (entries - 1). A reader copies each
 * entry once, validates the copy and uses only the copy. A violated index ends the session with a reason.
 *
 * The side that ends a session sends BYE. The daemon then fences whatever touches the session's memory, acks a
 * client's BYE, and closes its end of the socket. So end-of-file tells the client that nothing touches its memory
 * any more, whether the daemon fenced it or died. Before end-of-file, operations end with KVPIPE_C_MORE.
 */
#ifndef KVPIPE_RING_H
#define KVPIPE_RING_H

#include <stddef.h>
#include <stdint.h>

#ifndef KVPIPE_ABI               /* tests of neighbouring versions set others */
#define KVPIPE_ABI 1u            /* this protocol; a daemon serves KVPIPE_ABI_MIN .. KVPIPE_ABI */
#define KVPIPE_ABI_MIN 1u
#endif
#define KVPIPE_MAGIC 0x4550564bu /* "KVPE" */

/* ---- control messages ------------------------------------------------------------------------------------- */
/* Each message is one datagram: a header, then a body of len bytes (at most KVPIPE_CTL_MAX). A request carries a
 * sequence number, which its answer repeats. Fds ride along by SCM_RIGHTS. */
#define KVPIPE_CTL_MAX 65536u

enum kvpipe_ctl_type {
	KVPIPE_CTL_HELLO = 1,       /* c->d kvpipe_hello; answered by WELCOME, or by ACK with an error */
	KVPIPE_CTL_WELCOME = 2,     /* d->c kvpipe_welcome; fds: ring_c, ring_d, sq eventfd, cq eventfd */
	KVPIPE_CTL_ACK = 3,         /* d->c kvpipe_ack: the answer to everything else */
	KVPIPE_CTL_REGISTER = 4,    /* c->d kvpipe_register; one fd, or none with KVPIPE_REGISTER_INVALID */
	KVPIPE_CTL_UNREGISTER = 5,  /* c->d kvpipe_unregister; acked after the fence */
	KVPIPE_CTL_LAYOUT = 6,      /* c->d kvpipe_layout_msg: views and fields, in as many messages as needed */
	KVPIPE_CTL_BYE = 7,         /* c->d: close, acked after the fence; d->c: the session ends; kvpipe_ack has why */
	KVPIPE_CTL_PING = 8,        /* c->d, acked: is the daemon answering? */
	/* for daemons with KVPIPE_SAYS_INVALID */
	KVPIPE_CTL_INVALIDATE = 9,  /* c->d kvpipe_unregister; acked after the fence: the region stays, its memory
	                             * goes */
	KVPIPE_CTL_REVALIDATE = 10, /* c->d kvpipe_revalidate; one fd */
};

struct kvpipe_ctl {             /* 32 bytes, in front of every message */
	uint32_t magic;
	uint16_t type;
	uint16_t flags;         /* 0 */
	uint32_t len;           /* bytes that follow */
	uint32_t seq;
	uint64_t reserved[2];
};

struct kvpipe_hello {           /* 768 bytes */
	uint32_t abi_min, abi_max;
	uint64_t features;      /* wanted; unknown bits are refused */
	uint32_t role;
	uint32_t tp_rank, pp_rank, tp_world, pp_world;
	uint32_t sq_entries, cq_entries;
	uint32_t pid;           /* a hint for logs; SO_PEERCRED decides */
	uint32_t arena_bytes;   /* record area of ring_c; power of two, 0: 8 MiB */
	uint32_t layer_slots;   /* 0: 1024 */
	uint64_t session;       /* 0, or the session to come back to */
	uint8_t secret[32];     /* of that session; zero for a new one */
	char engine[128];       /* NUL-padded */
	char instance[128];     /* NUL-padded; empty: join or begin */
	char library[64];       /* NUL-padded version string */
	uint8_t reserved[352];
};

/* A receiver skips kinds that it does not know. */
enum kvpipe_ring_kind {
	KVPIPE_RING_SQ = 1,        /* ring_c: kvpipe_sqe[] */
	KVPIPE_RING_CQ = 2,        /* ring_d: kvpipe_cqe[] */
	KVPIPE_RING_RECORDS = 3,   /* ring_c: bytes; entries = size, entry_size = 1 */
	KVPIPE_RING_RESULTS = 4,   /* ring_d: bytes; results of completions */
	KVPIPE_RING_LAYERS = 5,    /* ring_d: kvpipe_layer_slot[] */
	KVPIPE_RING_WORK = 6,      /* ring_d: copies that the library is to execute (CUDA); not present yet */
	KVPIPE_RING_WORK_DONE = 7, /* ring_c: the ends of those copies; not present yet */
};

struct kvpipe_ring_desc {       /* 24 bytes */
	uint32_t kind;
	uint32_t memfd;         /* 0 ring_c, 1 ring_d */
	uint64_t offset;        /* 64-byte aligned */
	uint32_t entries;       /* power of two */
	uint32_t entry_size;
};

#define KVPIPE_RINGS_MAX 16u

struct kvpipe_welcome {         /* 1280 bytes */
	uint32_t abi;           /* chosen */
	uint32_t epoch;         /* daemon incarnation, another one at every start */
	uint64_t features;      /* granted */
	uint64_t session;
	uint8_t secret[32];     /* to come back to this session */
	uint64_t ring_c_bytes, ring_d_bytes;
	uint32_t nrings;
	uint32_t rank;          /* tp_rank + pp_rank * tp_world; 0xffffffff: scheduler */
	struct kvpipe_ring_desc rings[KVPIPE_RINGS_MAX];
	uint64_t max_pinned_bytes;
	uint64_t ops;           /* bit n: opcode n is understood */
	uint32_t max_ids, max_views, max_regions, max_inflight;
	char node[256];         /* NUL-padded */
	char instance[128];
	char advertise[128];
	char daemon[64];        /* version string */
	uint64_t says;          /* enum kvpipe_says: what this daemon can do beyond ABI 1 */
	uint8_t reserved[200];
};

enum kvpipe_says {
	KVPIPE_SAYS_GRANTED = 1u << 0,  /* keeps `granted` in the layer slots, and knows KVPIPE_OP_RESTARTED */
	KVPIPE_SAYS_INVALID = 1u << 1,  /* knows INVALIDATE, REVALIDATE and KVPIPE_REGISTER_INVALID */
	KVPIPE_SAYS_AGAIN = 1u << 2,    /* knows KVPIPE_SQE_AGAIN */
};

struct kvpipe_ack {             /* 32 bytes, then text_len bytes of UTF-8, no NUL */
	uint32_t reason;        /* enum kvpipe_reason; 0: done */
	uint32_t text_len;
	uint64_t value;         /* REGISTER: region id; else 0 */
	uint64_t reserved[2];
};

#define KVPIPE_REGISTER_SKIP 0xffffu
#define KVPIPE_REGISTER_INVALID (1u << 16)
struct kvpipe_register {        /* 32 bytes */
	uint64_t bytes;
	uint32_t kind;          /* 1: memfd; others later */
	uint32_t flags;         /* bits of KVPIPE_REGISTER_SKIP: bytes of the memfd before the region;
	                         * KVPIPE_REGISTER_INVALID: the region is only named, its memory comes with
	                         * REVALIDATE */
	uint64_t reserved[2];
};

struct kvpipe_unregister {      /* 32 bytes; for UNREGISTER and INVALIDATE */
	uint64_t region;
	uint64_t timeout_ns;
	uint64_t reserved[2];
};

struct kvpipe_revalidate {      /* 32 bytes */
	uint64_t region;
	uint64_t reserved[3];
};

#define KVPIPE_LAYOUT_COMMIT 1u
struct kvpipe_layout_msg {      /* 32 bytes; then nviews kvpipe_view of 128 bytes; then fields: u16 klen, u16 vlen,
                                 * key, value, without padding. A refused message ends the attempt: begin anew */
	uint32_t flags;         /* KVPIPE_LAYOUT_COMMIT in the last message */
	uint32_t nviews;        /* in this message */
	uint32_t nfields;       /* in this message */
	uint32_t total_views;   /* the same in every message */
	uint64_t reserved[2];
};

/* ---- submissions -------------------------------------------------------------------------------------------- */
/* EXTEND, SEAL, WITHDRAW and CANCEL hold no memory of their own. A MORE in the completion of a WITHDRAW or CANCEL is
 * about its target. A RELEASED of the WITHDRAW or CANCEL then follows, together with the target's; its user_data is
 * in use until then. The target's own completion is never later than that of its CANCEL.
 *
 * Each end of a pipe or lookup buffer is a session of its own (KVPIPE_ROLE_ENDPOINT), with one BIND. Its memory is
 * an arena with a layout of one view, in which a token is a byte: group 0, layer 0, part "kv", one head,
 * content_bytes 1. PUT publishes blocks of the arena as an item, GET asks for an item. */
enum kvpipe_op {
	KVPIPE_OPCODE_NOP = 0,
	KVPIPE_OPCODE_OFFER = 1,     /* record kvpipe_rec_offer; completes once, when the offer ends */
	KVPIPE_OPCODE_EXTEND = 2,    /* target: an offer; record kvpipe_rec_extend; completes when accepted */
	KVPIPE_OPCODE_SEAL = 3,      /* target: an offer; or a home BIND: nothing more is put, and a receiver that
	                              * has drained it gets CLOSED */
	KVPIPE_OPCODE_WITHDRAW = 4,  /* target: an offer, which itself ends CANCELLED; DONE with or without MORE */
	KVPIPE_OPCODE_TAKE = 5,      /* record kvpipe_rec_take */
	KVPIPE_OPCODE_CANCEL = 6,    /* target: any operation; DONE once the target has ended */
	KVPIPE_OPCODE_WATCH = 7,     /* record kvpipe_rec_key */
	KVPIPE_OPCODE_DROP = 8,      /* record kvpipe_rec_key */
	KVPIPE_OPCODE_BIND = 9,      /* record kvpipe_rec_bind; completes when the end is over: DONE when it was
	                              * sealed and all its items are consumed, CANCELLED, or FAILED (refused, peer
	                              * gone) */
	KVPIPE_OPCODE_PUT = 10,      /* target: a home BIND; record kvpipe_rec_put; DONE when the item was consumed */
	KVPIPE_OPCODE_GET = 11,      /* target: the BIND of a receiving end; record kvpipe_rec_get; completes as a
	                              * take does; a DONE completion has kvpipe_got in place of kvpipe_result */
};

#define KVPIPE_ROLE_ENDPOINT 3u /* HELLO role of an end of a pipe or lookup buffer: has no rank, fences nobody */

/* Flag of an OFFER or TAKE, for daemons with KVPIPE_SAYS_AGAIN: it was submitted before the session came back. The
 * daemon refuses a scheduler's operation with this flag if the operation may be about other ranks than those that
 * are there, or about what their memory held before they gave it up. */
#define KVPIPE_SQE_AGAIN 1u

struct kvpipe_sqe {             /* 64 bytes */
	uint8_t op;
	uint8_t flags;          /* KVPIPE_SQE_AGAIN */
	uint16_t reserved0;
	uint32_t rec_len;       /* bytes of the record with its padding: a multiple of 8; 0: none */
	uint64_t user_data;     /* nonzero; unique among the session's unreleased operations; top bit clear */
	uint64_t timeout_ns;    /* relative; for an offer: its lease */
	uint64_t rec_off;       /* free-running offset into RECORDS, 8-byte aligned; a record never wraps */
	uint64_t target;        /* user_data of the operation acted on */
	uint64_t tag;
	uint32_t layer_slot;    /* take: index into LAYERS, even if not layered; 0xffffffff: none */
	uint32_t reserved1;
	uint64_t reserved2;
};

/* A record begins at rec_off, and its space is reusable once sq_head has passed the entry. Strings are not
 * NUL-terminated. */
enum kvpipe_rec_form {
	KVPIPE_FORM_IDS = 1,    /* count u32: the ids */
	KVPIPE_FORM_RUNS = 2,   /* count pairs u32 first, u32 n: the ids first .. first+n-1; if first is
	                         * KVPIPE_NO_BLOCK: n holes */
};

struct kvpipe_rec_group {       /* 24 bytes; then the list; then zero padding to 8, also after the last group */
	uint32_t group;
	uint32_t first_token;
	uint32_t ntokens;
	uint32_t form;          /* enum kvpipe_rec_form */
	uint32_t count;
	uint32_t reserved;
};

struct kvpipe_rec_offer {       /* 64 bytes; then key, token, content, trace, zero padding to 8; then ngroups groups */
	uint32_t flags;         /* KVPIPE_OP_SEALED, KVPIPE_OP_LAYERED */
	uint32_t consumers;
	uint64_t after;
	uint16_t key_len, token_len, content_len, trace_len;
	uint32_t ngroups;
	uint32_t reserved0;
	uint64_t reserved[4];
};

struct kvpipe_rec_extend {      /* 32 bytes; then groups */
	uint32_t flags;
	uint32_t ngroups;
	uint64_t after;
	uint64_t reserved[2];
};

/* Flag of a take's record, from a library that came back: bytes were granted to the take before the daemon was
 * restarted. The daemon does not take again; it tells every session concerned FAILED(RESTARTED). */
#define KVPIPE_OP_RESTARTED (1u << 31)

struct kvpipe_rec_take {        /* 80 bytes; then key, token, content, trace, peer, zero padding to 8; then groups */
	uint32_t flags;         /* KVPIPE_OP_LAYERED, KVPIPE_OP_RESTARTED */
	uint32_t part, parts;
	uint32_t reserved0;
	uint64_t take_id;
	uint64_t after;
	uint16_t key_len, token_len, content_len, trace_len;
	uint16_t peer_len, reserved1[3];
	uint32_t ngroups;
	uint32_t reserved2;
	uint64_t reserved[3];
};

struct kvpipe_rec_key {         /* 32 bytes; then key, token, trace, peer, zero padding to 8 */
	uint16_t key_len, token_len, trace_len, peer_len;
	uint64_t reserved[3];
};

enum kvpipe_bind_kind {
	KVPIPE_BIND_SEND = 1,   /* home of a pipe */
	KVPIPE_BIND_RECV = 2,
	KVPIPE_BIND_OWN = 3,    /* home of a lookup buffer */
	KVPIPE_BIND_SELECT = 4,
};

#define KVPIPE_MAX_NAME 256u     /* bytes of a pipe's or buffer's name */
#define KVPIPE_MAX_META 720u     /* bytes of an item's description */
#define KVPIPE_MAX_TOKENS 262144u /* tokens that an item is found by */

struct kvpipe_rec_bind {        /* 48 bytes; then name, token, peer, zero padding to 8 */
	uint32_t kind;          /* enum kvpipe_bind_kind */
	uint32_t flags;         /* 0 */
	uint64_t capacity;      /* home: bytes that it may hold; else 0 */
	uint64_t linger_ns;     /* home: how long items outlive this session; 0: the daemon's default */
	uint16_t name_len;      /* 1 .. KVPIPE_MAX_NAME */
	uint16_t token_len;     /* 0: anybody on this node and its peers; else 16 .. 32 */
	uint16_t peer_len;      /* receiving end: the home's node; 0: this one. Home: 0 */
	uint16_t reserved0;
	uint64_t reserved[2];
};

enum kvpipe_match {
	KVPIPE_MATCH_NEXT = 1,    /* an item of a pipe, by its number */
	KVPIPE_MATCH_ANY = 2,     /* PUT: an item without tokens; GET: the oldest item, whatever its tokens */
	KVPIPE_MATCH_PREFIX = 3,  /* the item's tokens begin with the query's, or the other way round */
	KVPIPE_MATCH_EXACT = 4,   /* GET: the item's tokens equal the query's */
	KVPIPE_MATCH_KEY = 5,     /* by its key; such an item stays until it is replaced */
	KVPIPE_MATCH_ITEM = 6,    /* GET: the item that is reserved because an earlier GET had no room for it */
	KVPIPE_MATCH_DECLINE = 7, /* GET: give that item back; moves nothing */
};

/* The group of a PUT covers `bytes` tokens from 0 on, that of a GET `room` tokens. A GET writes no more than the
 * item has. */
struct kvpipe_rec_put {         /* 48 bytes; then meta, key, zero padding to 8; then ntokens u32, zero padding to 8; then groups */
	uint32_t form;          /* enum kvpipe_match: NEXT of a pipe; PREFIX, ANY, KEY of a lookup buffer */
	uint32_t flags;         /* 0 */
	uint64_t bytes;
	uint32_t meta_len;      /* at most KVPIPE_MAX_META: describes the item, for its receiver alone */
	uint32_t key_len;       /* KEY: 1 .. KVPIPE_MAX_KEY; else 0 */
	uint32_t ntokens;       /* PREFIX: 1 .. KVPIPE_MAX_TOKENS; else 0 */
	uint32_t ngroups;       /* 0 or 1 */
	uint64_t reserved[2];
};

struct kvpipe_rec_get {         /* 64 bytes; then key, zero padding to 8; then ntokens u32, zero padding to 8; then groups */
	uint32_t match;         /* enum kvpipe_match */
	uint32_t flags;         /* 0 */
	uint64_t room;          /* bytes that the groups cover; 0: ask for the size first */
	uint64_t seq;           /* NEXT: the item's number, from 0; ITEM, DECLINE: kvpipe_got.item of the answer
	                         * before */
	uint32_t key_len;       /* KEY: 1 .. KVPIPE_MAX_KEY; else 0 */
	uint32_t ntokens;       /* PREFIX, EXACT: 1 .. KVPIPE_MAX_TOKENS; else 0 */
	uint32_t ngroups;       /* 0 or 1 */
	uint32_t reserved0;
	uint64_t reserved[3];
};

/* ---- completions --------------------------------------------------------------------------------------------- */
struct kvpipe_cqe {             /* 64 bytes */
	uint64_t user_data;     /* 0: the operation is another session's of the engine */
	uint64_t tag;
	uint64_t op_id;
	uint64_t bytes;
	uint16_t status;        /* enum kvpipe_status */
	uint16_t reason;        /* enum kvpipe_reason */
	uint32_t flags;         /* enum kvpipe_completion_flags */
	uint32_t rank;
	uint32_t epoch;
	uint64_t result_off;    /* free-running offset into RESULTS, 8-byte aligned; a result never wraps */
	uint32_t result_len;    /* 0: none */
	uint32_t reserved;
};

struct kvpipe_result {          /* 16 bytes; then nfailed kvpipe_run of 12 bytes; then text_len bytes of UTF-8, no NUL */
	uint32_t nfailed;       /* runs that follow, at most 1024; if there are more, one run {group, 0, 0xffffffff}
	                         * for each group says "all" */
	uint32_t text_len;
	uint64_t reserved;
};

/* Flag of a DONE GET (beside enum kvpipe_completion_flags): nothing was moved, since the item has more bytes than
 * there was room for. The item is reserved for this end until GET ITEM or DECLINE, or until this GET's timeout. */
#define KVPIPE_C_SHORT (1u << 2)

struct kvpipe_got {             /* 48 bytes; then meta_len bytes of meta */
	uint64_t item;
	uint64_t bytes;         /* of the item; the CQE has the number of bytes moved */
	uint64_t capacity;      /* of the home; no item is larger */
	uint64_t matched;       /* tokens that agree with the query's; ANY: all of the item's */
	uint32_t meta_len;
	uint32_t reserved0;
	uint64_t reserved;
};

/* Belongs to the take that named this slot.
 *
 * `granted` is set before the first byte can land in the take's blocks. So a client that finds the daemon dead knows
 * whether it may send the take again.
 *
 * `ready` counts layers. A worker's take has the distinct layers of its session's views of the groups that the take
 * names. A scheduler's take has the distinct layers of all ranks concerned. After `ready` has moved, the daemon
 * wakes the client as after a completion: full barrier, then cq_waiting, then the cq eventfd.
 *
 * The client reuses a slot only after its take is released. */
struct kvpipe_layer_slot {      /* 64 bytes */
	uint64_t user_data;     /* of the take; written last, with RELEASE, after ready was cleared */
	uint32_t ready;         /* number of the take's layers, in ascending order, that are in place */
	uint32_t granted;       /* nonzero: bytes may have been written; cleared together with ready */
	uint32_t reserved[12];
};

/* ---- index pages ---------------------------------------------------------------------------------------------- */
/* A side that sleeps on an eventfd, or is about to, says so in its word: the client in cq_waiting, the daemon in
 * need_wakeup.
 *  - 0: it does not sleep.
 *  - 1: ring for whatever is published.
 *  - Any other value: ring once, and not again until the value changes. The sleeper uses another value each time it
 *    sleeps, and has heard earlier rings by then. It may be rung a little before there is something: it looks, and
 *    sleeps again if need be.
 *
 * kvpipe_ring_c is at offset 0 of ring_c. Each word is alone in its cache line. */
struct kvpipe_ring_c {          /* 384 bytes */
	uint32_t sq_tail;       uint8_t pad0[60];
	uint32_t cq_head;       uint8_t pad1[60];  /* entries before it, and their results, are reusable */
	uint32_t cq_waiting;    uint8_t pad2[60];  /* nonzero: the client sleeps on the cq eventfd (see above) */
	uint64_t progress;      uint8_t pad3[56];  /* step << 16 | phase */
	uint32_t work_done_tail;uint8_t pad4[60];
	uint32_t work_head;     uint8_t pad5[60];
};

/* At offset 0 of ring_d. */
struct kvpipe_ring_d {          /* 512 bytes */
	uint32_t sq_head;       uint8_t pad0[60];  /* entries before it, and their records, are reusable */
	uint32_t cq_tail;       uint8_t pad1[60];
	uint32_t need_wakeup;   uint8_t pad2[60];  /* nonzero: the daemon sleeps on the sq eventfd (see above) */
	uint64_t progress_wait; uint8_t pad3[56];  /* nonzero: wake the daemon when progress reaches this value */
	uint32_t closed;        uint8_t pad4[60];  /* nonzero: the session has ended; enum kvpipe_reason */
	uint64_t heartbeat;     uint8_t pad5[56];  /* changes about once a second while the daemon runs; 0: it gives
	                                            * none */
	uint32_t work_tail;     uint8_t pad6[60];
	uint32_t work_done_head;uint8_t pad7[60];
};

#ifndef KVPIPE_NO_ASSERT
#include "ring_assert.h"
#endif
#endif
