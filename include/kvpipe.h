/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpipe.h - hand KV-cache blocks from one inference engine to another.
 *
 * A process opens a session with the node's daemon (kvpiped), registers memory, describes how its KV cache lies
 * in that memory, and then offers blocks under a key or takes the blocks of a key into its own blocks. The
 * daemons move the bytes. A function that can block says so, and for how long at most.
 *
 * Conventions
 *  - Every function that can fail returns 0 (or a count) on success and a negative KVPIPE_E_* code otherwise.
 *    kvpipe_last_error() then says, for the calling thread, what was wrong and what to do.
 *  - Option structs begin with their own size: initialise them with KVPIPE_OPTS(type, .field = value, ...).
 *    A newer library accepts older structs; an older library accepts newer structs whose unknown tail is zero.
 *    Reserved fields must be zero and are checked.
 *  - Times are nanoseconds, relative, int64_t. 0 means the default named at the field; for kvpipe_wait*, which name
 *    none, it means: look, do not wait. KVPIPE_FOREVER is refused for operations (every operation has a deadline) and
 *    allowed for kvpipe_wait*, where it means 30 s past the operation's own deadline: nothing waits for ever.
 *  - Pointers passed in are borrowed until the call returns, unless said otherwise.
 *  - All functions may be called from any thread; calls on one session serialise inside where they must. A handle
 *    must not be used while or after another thread closes it. A thread that is cancelled (pthread_cancel) inside a call
 *    ends after it. After fork() the child must not use the parent's handles: every call there returns -KVPIPE_E_CLOSED,
 *    and kvpipe_close() only frees the child's own memory.
 *
 * Memory rules ("May I reuse this buffer?")
 *  - An offer is a shared hold on its source blocks, from submission until RELEASED: do not write them.
 *  - A take is an exclusive hold on its destination blocks, from submission until RELEASED: do not touch them.
 *  - A terminal completion (DONE, FAILED, CANCELLED) without KVPIPE_C_MORE means released: nothing touches the
 *    memory any more. With KVPIPE_C_MORE exactly one RELEASED completion follows (perhaps QUARANTINED before it).
 */
/*
 * When the daemon is restarted the session goes on by itself: handles, regions, layout and live offers stay valid, and
 * kvpipe_connected() says 0 until the next daemon is there. What the application sees:
 *  - Offers, watches, drops, and takes to which no byte was granted go on as if nothing had been; an offer's lease begins anew.
 *  - A take with bytes ends FAILED with KVPIPE_E_RESTARTED, without KVPIPE_C_MORE: its memory is free. Take again.
 *    (When it is the other node's daemon that ends, it is KVPIPE_E_PEER_GONE: this side cannot wait to see whether that comes back.)
 *  - What a scheduler offers or takes ends FAILED with KVPIPE_E_RESTARTED when another worker has come in the place of one that it was
 *    about, or the scheduler itself is back too late; with KVPIPE_E_UNAVAILABLE when a rank of the engine here is missing.
 *    RESTARTED comes without a restart, too, of what was submitted before such a worker came and read after it.
 *  - What is submitted meanwhile waits for the next daemon; it ends at its deadline (TIMEOUT; an offer EXPIRED) if none comes.
 *    Cancelling and withdrawing take effect at once. Calls that wait for an answer wait until their own timeout.
 *  - A session that another instance of the engine has replaced meanwhile, or that the next daemon refuses, is over: every call
 *    says why. So are pipes and lookup buffers (KVPIPE_E_RESTARTED): open them again.
 * A daemon that stands still without ending is none that is gone: operations end at their deadlines with KVPIPE_C_MORE, and
 * RELEASED follows when it goes on or is killed.
 */
#ifndef KVPIPE_H
#define KVPIPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVPIPE_API __attribute__((visibility("default")))

/* Version of this header. The library's own is kvpipe_version(). */
#define KVPIPE_VERSION_MAJOR 0
#define KVPIPE_VERSION_MINOR 1
#define KVPIPE_VERSION_PATCH 0

/* ---- limits; kvpipe_probe() answers those of the library and daemon in use ------------------------------- */
#define KVPIPE_MAX_KEY 256u          /* bytes of a key; at least 1 */
#define KVPIPE_MIN_TOKEN 16u         /* bytes of a token */
#define KVPIPE_MAX_TOKEN 32u
#define KVPIPE_MAX_CONTENT 64u       /* bytes of a content digest */
#define KVPIPE_MAX_TRACE 64u         /* bytes of a trace id */
#define KVPIPE_MAX_PEER 255u         /* bytes of a peer name or "host:port" hint */
#define KVPIPE_MAX_ID 128u           /* bytes of an engine id, an instance id, a fingerprint key */
#define KVPIPE_MAX_VALUE 256u        /* bytes of a fingerprint value */
#define KVPIPE_MAX_FINGERPRINT 64u   /* fields of a fingerprint */
#define KVPIPE_MAX_IDS 1048576u      /* block ids per operation, all groups together */
#define KVPIPE_MAX_GROUPS 64u        /* block groups per layout and per operation */
#define KVPIPE_MAX_VIEWS 4096u       /* views per layout */
#define KVPIPE_MAX_REGIONS 1024u     /* regions per session */
#define KVPIPE_MAX_INFLIGHT 4096u    /* operations per session that are not yet released; and at most a third of its cq_entries */
#define KVPIPE_MAX_CONSUMERS 256u    /* consumers of one offer; parts of one take */

#define KVPIPE_NO_BLOCK 0xffffffffu  /* a position of a block list that has no block */
#define KVPIPE_FOREVER INT64_MAX
#define KVPIPE_NOWAIT INT64_MIN      /* a timeout of extend, seal, withdraw and cancel: asks, and does not wait for the answer */

/* ---- errors and reasons ----------------------------------------------------------------------------------
 * One numbering serves return values (negative) and the reason of a completion (positive). Values never change. */
enum kvpipe_reason {
	KVPIPE_OK = 0,
	KVPIPE_E_INVALID = 1,       /* an argument or a record is malformed or out of range */
	KVPIPE_E_NOT_FOUND = 2,     /* no such key, peer, region, operation, or a needed block was not offered */
	KVPIPE_E_EXPIRED = 3,       /* the offer's lease ran out, or it was withdrawn or consumed */
	KVPIPE_E_DENIED = 4,        /* wrong token, not your engine, peer not allowed, socket permission */
	KVPIPE_E_INCOMPATIBLE = 5,  /* fingerprint, layout, content digest, ABI or protocol versions do not agree */
	KVPIPE_E_BUSY = 6,          /* a conflicting hold, a key in use, a region with work in flight */
	KVPIPE_E_QUOTA = 7,         /* a limit of the session, the engine or the daemon is reached */
	KVPIPE_E_TIMEOUT = 8,       /* the deadline passed */
	KVPIPE_E_CANCELLED = 9,     /* cancelled by its owner */
	KVPIPE_E_PEER_GONE = 10,    /* the other engine or daemon died, or its node cannot be reached */
	KVPIPE_E_RESTARTED = 11,    /* this node's daemon was restarted while bytes were granted; or another worker has come since */
	KVPIPE_E_UNAVAILABLE = 12,  /* no daemon, daemon draining, own rank gone, transport not allowed or not present, memory that is invalid */
	KVPIPE_E_CORRUPT = 13,      /* a checksum did not agree, also after retries, or memory faulted */
	KVPIPE_E_CLOSED = 14,       /* this session was closed, or ended by the daemon with a reason */
};

/* ---- sessions -------------------------------------------------------------------------------------------- */
typedef struct kvpipe kvpipe_t;  /* one session; owned by the caller until kvpipe_close() */
typedef uint64_t kvpipe_op_t;    /* names an operation within its session; never reused; 0 is none */
typedef uint64_t kvpipe_region_t;/* 0 is none; a session never uses one twice */

enum kvpipe_role {
	KVPIPE_ROLE_WORKER = 1,     /* owns memory and blocks of one rank */
	KVPIPE_ROLE_SCHEDULER = 2,  /* owns no memory; offers and takes for all ranks of its engine on this node */
};

struct kvpipe_connect_opts {
	size_t sz;
	const char *socket;       /* NULL: $KVPIPE_SOCKET, /run/kvpipe/kvpiped.sock, then the --dev default. One below /tmp/kvpipe-UID,
	                           * whoever names it, only while that is the user's alone (0700), and so is who listens: else DENIED */
	const char *engine_id;    /* required, at most KVPIPE_MAX_ID bytes */
	const char *instance;     /* NULL: join the live instance of engine and owner, or begin a new one */
	uint32_t role;            /* enum kvpipe_role; required */
	uint32_t tp_rank, pp_rank;    /* ignored for schedulers */
	uint32_t tp_world, pp_world;  /* 0 is 1 */
	uint32_t sq_entries;      /* power of two; 0: 1024 */
	uint32_t cq_entries;      /* power of two; 0: 4096. A third of them is the most operations that are not released: 1,365. More
	                           * take more of the daemon's memory for each session (its limits.ring_memory) */
	uint32_t flags;           /* 0 */
	int64_t timeout_ns;       /* 0: 5 s */
	uint64_t reserved[4];
};

/* Opens a session. Blocks at most timeout_ns. Errors: UNAVAILABLE (no daemon: how to start it; a sandbox forbids eventfd2), DENIED (socket
 * permission: which group or user), INCOMPATIBLE (both ABI versions), BUSY (that rank of that instance has a session). */
KVPIPE_API int kvpipe_connect(const struct kvpipe_connect_opts *opts, kvpipe_t **out);

/* Ends the session: the daemon fences whatever still touches its memory, then forgets it. Offers and takes of the
 * session end with it, and so do its ends of pipes and lookup buffers, whose handles are still to be closed. Returns after the
 * fence, or after 5 s, however many ends there are; the session's memory regions are unmapped. Closing NULL is allowed; closing a
 * handle twice is not detectable once freed, so set yours to NULL.
 *
 * A daemon that stands still for longer may go on, when it runs again, with what it had begun, until it has fenced or is killed: memory from
 * kvpipe_mem_alloc() is no longer anybody's here, but do not use that of registered fds and what was adopted for anything else before. Who
 * has to know that nothing touches it calls kvpipe_mem_unregister() first. */
KVPIPE_API void kvpipe_close(kvpipe_t *kv);

KVPIPE_API int kvpipe_connected(const kvpipe_t *kv);            /* 1 while the daemon answers, else 0; again 1 after its restart */
KVPIPE_API const char *kvpipe_node(const kvpipe_t *kv);         /* the node's name; owned by the session */
KVPIPE_API const char *kvpipe_instance(const kvpipe_t *kv);     /* the engine instance; owned by the session */
KVPIPE_API const char *kvpipe_advertise(const kvpipe_t *kv);    /* "host:port" that other nodes dial, or ""; another after a restart, perhaps */

/* Readable whenever kvpipe_poll() may have something to say, also while no completion is there: for good once the session is over, when
 * kvpipe_poll() says why. Owned by the session, which has it until it is closed: do not read or close it. Level-triggered epoll works:
 * it is drained by kvpipe_poll(). Negative: no session, or the parent's after fork(). Once it was asked for, the daemon rings for
 * every completion; a session that only waits is a little cheaper without. */
KVPIPE_API int kvpipe_fd(const kvpipe_t *kv);

/* ---- memory ----------------------------------------------------------------------------------------------- */
enum kvpipe_mem_flags {
	KVPIPE_MEM_HUGE = 1u << 0,     /* huge pages or an error; without it: huge pages when there are any */
	KVPIPE_MEM_NO_HUGE = 1u << 1,  /* never huge pages */
};

/* Allocates nbytes of shared memory (sealed memfd, prefaulted, not dumped, not inherited by fork), maps it in
 * this process and registers it. *addr is page aligned and lives until kvpipe_mem_unregister(). Takes as long as the
 * kernel takes to give the pages, and waits for the daemon at most 5 s, as the next two and kvpipe_set_layout() do. Errors:
 * QUOTA (no memory, no huge pages, the daemon's limit: which), UNAVAILABLE (the daemon is away, and not back in time, or a
 * sandbox forbids memfd_create: which). */
KVPIPE_API int kvpipe_mem_alloc(kvpipe_t *kv, uint64_t nbytes, uint32_t flags, void **addr, kvpipe_region_t *region);

/* Registers nbytes of a memfd of the caller's, from its start. The memfd must be sealed against shrinking and fully
 * allocated (sparse files are refused), and readable and writable; else INVALID, with what is missing. The fd is duplicated;
 * flags is 0. Mapping it, and keeping that
 * mapping out of core dumps and forked children (MADV_DONTDUMP, MADV_DONTFORK), is up to the caller. The daemon keeps all of the memfd:
 * all of it counts to its limits, for each region. When the process dies, what its finished offers don't need of the nbytes goes back to
 * the system and reads as zeros, for others that have the memfd too, unless another region lies in it. */
KVPIPE_API int kvpipe_mem_register_fd(kvpipe_t *kv, int fd, uint64_t nbytes, uint32_t flags, kvpipe_region_t *region);

enum kvpipe_adopt_flags {
	KVPIPE_ADOPT_QUIESCED = 1u << 0, /* nobody writes the memory during the call, and no system call does */
};

struct kvpipe_adopt_opts {
	size_t sz;
	void *addr;          /* the first byte */
	uint64_t nbytes;     /* exactly these bytes become the region: offset 0 of it is *addr */
	uint32_t flags;      /* enum kvpipe_adopt_flags */
	uint32_t reserved0;
	uint64_t reserved[4];
};

/* Makes a region of memory that the program has already, without moving it: a memfd is put under its pages (as sealed and as
 * little dumped as one of kvpipe_mem_alloc()), and pointers to it stay good. The memory stays the program's: it must not
 * be freed or unmapped while it is registered, is to be freed as ever afterwards, and must never be resized again. Other threads may
 * read and write it all the while and lose nothing (userfaultfd; for up to 64 MiB at a time they wait, tens of milliseconds);
 * a system call that writes there meanwhile may fail with EFAULT unless the process may use userfaultfd without
 * UFFD_USER_MODE_ONLY. Where there is no userfaultfd, only with KVPIPE_ADOPT_QUIESCED. Do not fork() meanwhile.
 *
 * From then on, after the region's end as well, until the program frees it: no realloc() and no mremap(), nor what calls them, since
 * bytes that it grows by would lie behind the end of the memfd, and to touch them is SIGBUS: allocate anew and copy; children that
 * are forked share the memory instead of getting a copy, and it has transparent huge pages only where shmem has them. So it is
 * after a call that failed, too. It may be adopted again. Where GLIBC_TUNABLES sets glibc.malloc.tcache_max above the size of such an
 * allocation, glibc 2.43 and later keep it when it is freed, and give it, as it is, to some later malloc(): do not set it so.
 *
 * What can be adopted is private anonymous memory whose pages hold nothing else: pages that the bytes fill, a mapping of just
 * these pages, or one allocation of glibc that has a mapping of its own (malloc() of at least M_MMAP_THRESHOLD bytes), from its
 * beginning. -KVPIPE_E_INVALID, with what to do: memory of files, shared, locked, executable, of a stack, of the brk heap, registered
 * with CUDA, or with others' data on the edge pages. Pins that the kernel does not show (RDMA, io_uring buffers) have to be
 * taken after adopting. -KVPIPE_E_BUSY: adopted already. -KVPIPE_E_UNAVAILABLE: no userfaultfd. -KVPIPE_E_QUOTA: no memory (64 MiB
 * more are needed meanwhile), or the daemon's limit. -KVPIPE_E_TIMEOUT: the daemon did not answer. All of the memory stays usable. */
KVPIPE_API int kvpipe_mem_adopt(kvpipe_t *kv, const struct kvpipe_adopt_opts *opts, kvpipe_region_t *region);

/* Takes the region away from the daemon: operations that use it are ended and fenced first. Waits at most timeout_ns
 * (0: 5 s); -KVPIPE_E_TIMEOUT: it may have begun: operations that use the region have ended then, and new ones are refused
 * (KVPIPE_E_NOT_FOUND, if the layout names it); its memory is the daemon's, too, until another call succeeds. Memory from
 * kvpipe_mem_alloc() is unmapped; what was adopted stays.
 * A daemon of after a restart that was told of the memory, and does not have the session, is waited for, too.
 * While the daemon of after a restart refuses the session by a quota, regions can be taken away without it, to make the session
 * smaller: -KVPIPE_E_BUSY then as long as operations wait for that daemon. */
KVPIPE_API int kvpipe_mem_unregister(kvpipe_t *kv, kvpipe_region_t region, int64_t timeout_ns);

/* For an engine that sleeps: what is in the region, and its pages, are given up for a while; its id, its address and the layout stay.
 * Offers and takes of this session's blocks, also those of a scheduler's session and what a dead one has left, are ended and
 * fenced first (FAILED with KVPIPE_E_UNAVAILABLE), and whatever was submitted here before is among them. Then the daemon unmaps
 * the region, and its bytes count against no limit. New offers and takes fail with KVPIPE_E_UNAVAILABLE until kvpipe_mem_revalidate(),
 * at schedulers, too, if a layout names the region. Waits at most timeout_ns (0: 5 s).
 *
 * Memory from kvpipe_mem_alloc() goes back to the system and stays mapped: do not touch it, a write takes new pages, which the
 * next invalidation or unregistration frees. Memory of a registered fd, and what was adopted, is left as it is: give its pages back
 * after this call, by fallocate(FALLOC_FL_PUNCH_HOLE) or MADV_REMOVE, or keep them; and allocate all of it again before it is revalidated.
 *
 * Of a region that is invalid it returns 0 at once. While the daemon is away, and no operation waits for it, it needs no daemon; an
 * invalid region is one to the next daemon, too. A scheduler that is back there later brings its offers with it: withdraw those
 * before. -KVPIPE_E_TIMEOUT: it may have begun: call it again. -KVPIPE_E_INCOMPATIBLE: the daemon is older than this. -KVPIPE_E_BUSY: another
 * thread is at it. */
KVPIPE_API int kvpipe_mem_invalidate(kvpipe_t *kv, kvpipe_region_t region, int64_t timeout_ns);

/* The end of that: memory from kvpipe_mem_alloc() is allocated and prefaulted again, at its address; that of a registered fd has to be
 * there, all of it (sparse files are refused, INVALID). Then the daemon maps the region as when it was registered, and the layout
 * holds again. What is in it is undefined. Waits for the daemon at most timeout_ns (0: 5 s), not counting what the kernel takes
 * to give the pages.
 *
 * Of a region that is valid it returns 0 at once. -KVPIPE_E_QUOTA: no memory, or the daemon's limit: which; the region stays invalid, as after
 * other errors, and its pages with the system. -KVPIPE_E_UNAVAILABLE: the daemon is away, and not back in time: the region is
 * valid here, and comes back with it. -KVPIPE_E_TIMEOUT, -KVPIPE_E_INCOMPATIBLE and -KVPIPE_E_BUSY as above. */
KVPIPE_API int kvpipe_mem_revalidate(kvpipe_t *kv, kvpipe_region_t region, int64_t timeout_ns);

/* ---- layout ----------------------------------------------------------------------------------------------- */
enum kvpipe_view_kind {
	KVPIPE_VIEW_PAGED = 1,   /* blocks of block_size tokens */
	KVPIPE_VIEW_OPAQUE = 2,  /* blocks that only move whole (SSM state): content_bytes each */
};

/* How one layer's part lies in a region. The element (block b, token slot t, head h) occupies the content_bytes at
 *   base + b * block_stride + t * token_stride + (h - first_head) * head_stride.
 * Views of a group may lie in one place (layers that share their KV); what is taken into them has to lie in one place, too, or the
 * take ends INCOMPATIBLE. Views of a group that are shaped alike and begin at different bytes have elements that do not overlap,
 * or the layout is refused (INVALID).
 * 128 bytes, also the form in which it crosses to the daemon. */
struct kvpipe_view {
	uint64_t region;         /* kvpipe_region_t */
	uint64_t base;           /* bytes from the region's start */
	uint64_t num_blocks;     /* block ids are 0 .. num_blocks-1 */
	uint64_t block_stride;   /* bytes */
	uint64_t token_stride;   /* bytes; 0 for opaque */
	uint64_t head_stride;    /* bytes; 0 for opaque */
	uint64_t content_bytes;  /* bytes of one token of one head (paged), of one block (opaque) */
	uint32_t layer;          /* the model's own number */
	uint32_t group;          /* block ids index all views of a group; at most KVPIPE_MAX_GROUPS - 1 */
	uint32_t kind;           /* enum kvpipe_view_kind */
	uint32_t block_size;     /* tokens per block; for opaque the tokens that one block stands for, or 0 */
	uint32_t first_head;     /* model-wide index of the first kv head held here */
	uint32_t heads;          /* heads held here; 1 for MLA */
	uint32_t total_heads;    /* kv heads of the model; equal on all ranks of all engines that exchange */
	char part[16];           /* "kv", "k", "v", "index", ...: 1 to 15 printable ASCII bytes without spaces, NUL-padded */
	uint32_t reserved[7];
};

struct kvpipe_field {        /* one field of a fingerprint; both strings are required */
	const char *key;
	const char *value;
};

/* Sets the session's layout: once, before its first operation, by workers. The fingerprint (model, revision, dtype,
 * scale mode, layers, kv heads, head size, ...; never a local path) must agree field by field with the other side's.
 * Errors: INVALID names the view and what is wrong with it; a layout that was refused may be set again, corrected. TIMEOUT: the
 * daemon does not answer, and may have the layout; the very same one may be set again. When a region of it is unregistered the
 * session has no use of it any more, nor another one, also after a restart of the daemon. */
KVPIPE_API int kvpipe_set_layout(kvpipe_t *kv, const struct kvpipe_view *views, uint32_t nviews,
				 const struct kvpipe_field *fingerprint, uint32_t nfields);

/* Says how far this rank is: step << 16 | phase (0 start, l + 1 when the rank's l-th layer is written, 0xffff saved).
 * Never moving back (a smaller value is ignored). A store and, when the daemon waits for it, a wake-up. By workers: a scheduler
 * has no rank, INVALID. Fails when the session is over, for good. */
KVPIPE_API int kvpipe_progress(kvpipe_t *kv, uint64_t value);

/* ---- operations ------------------------------------------------------------------------------------------- */
/* Block ids of one group. Block i of the list holds the tokens of the group's block number first_token / block_size
 * + i, so the list has ceil((first_token + ntokens) / block_size) - first_token / block_size entries. Exactly the
 * tokens [first_token, first_token + ntokens) are read or written. Lists of opaque groups pair by position. */
struct kvpipe_blocks {
	uint32_t group;
	uint32_t first_token;
	uint32_t ntokens;
	uint32_t count;          /* entries in ids */
	const uint32_t *ids;     /* KVPIPE_NO_BLOCK where a position has no block */
};

enum kvpipe_op_flags {
	KVPIPE_OP_SEALED = 1u << 0,   /* offer: nothing will be added */
	KVPIPE_OP_LAYERED = 1u << 1,  /* extend: ready layer by layer; take: report layer by layer (kvpipe_wait_layer) */
};

struct kvpipe_offer_opts {
	size_t sz;
	const void *key;             /* 1 .. KVPIPE_MAX_KEY bytes */
	uint32_t key_len;
	uint32_t token_len;          /* 0: the library draws a random token of 16 bytes */
	const void *token;
	const struct kvpipe_blocks *blocks;
	uint32_t nblocks;            /* groups in blocks; 0 for an offer to be extended */
	uint32_t flags;              /* KVPIPE_OP_SEALED, KVPIPE_OP_LAYERED */
	uint32_t consumers;          /* engines that will take it; 0 is 1 */
	uint32_t content_len;
	const void *content;         /* digest that both sides must agree on, or NULL */
	const char *trace;           /* shows in logs of both nodes, or NULL */
	uint64_t after;              /* blocks are ready once every rank's progress has reached it */
	uint64_t tag;                /* comes back in the completions of every session concerned */
	int64_t lease_ns;            /* 0: the daemon's default_lease (30 s), and 30 s while it is away, whatever that is; cut to its max_lease
	                              * (10 min), refused beyond 30 days */
	uint64_t reserved[4];
};

struct kvpipe_extend_opts {
	size_t sz;
	const struct kvpipe_blocks *blocks;  /* appended: the first token of each is where the offer ended; 4,096 pieces at most, with the first.
	                                      * Of an opaque group one piece alone has blocks (INVALID): the one after which they are final */
	uint32_t nblocks;
	uint32_t flags;              /* KVPIPE_OP_LAYERED, KVPIPE_OP_SEALED */
	uint64_t after;
	uint64_t reserved[4];
};

struct kvpipe_take_opts {
	size_t sz;
	const void *key;
	uint32_t key_len;
	uint32_t token_len;
	const void *token;           /* the offer's */
	const char *peer;            /* node name or "host:port" hint; NULL or "": this node */
	const struct kvpipe_blocks *blocks;
	uint32_t nblocks;
	uint32_t flags;              /* KVPIPE_OP_LAYERED */
	uint32_t part, parts;        /* part i of n of one take; parts 0 is 1 */
	uint64_t take_id;            /* idempotent by (instance, take id, part); 0: the library draws one */
	uint32_t content_len;
	uint32_t reserved0;
	const void *content;
	const char *trace;
	uint64_t after;              /* no byte lands before every rank's progress has reached it */
	uint64_t tag;
	int64_t timeout_ns;          /* the operation's deadline; 0: 30 s; cut to 1 h, refused beyond 30 days */
	uint64_t reserved[4];
};

/* Submit. They return as soon as the daemon can see the operation (-KVPIPE_E_BUSY when the queue is full, after
 * waiting for room at most 100 ms); what the daemon thinks of it comes as its completion. Blocks and keys are copied.
 * An offer completes once: DONE when consumed, FAILED(EXPIRED) when its lease ran out, CANCELLED when withdrawn.
 * One that is sealed, and whose blocks were all written (progress has reached "after"), outlives the death of its
 * process by the daemon's orphan_lease, or by what is left of its lease if that is less. An offer that the next
 * instance of the engine makes under the same key takes its place. kvpipe_close() withdraws instead.
 *
 * What FAILED comes with, and what to do; the message says which it was:
 *  INVALID       both: not blocks of the layout, or there is none; offer: ranks extended it unequally; take: a part that is none. Correct it
 *  NOT_FOUND     both: memory of the layout was unregistered: open a new session. take: no such peer; no offer came under the key in time;
 *                or it lacks blocks: compute those (failed)
 *  EXPIRED       offer: its lease ran out, or the engine's next instance came: offer again what is still wanted. take: the offer is over
 *                (withdrawn, consumed by others, replaced, not renewed): have it made anew
 *  DENIED        both: wrong token (offer: not the other ranks'); take: a peer that is not allowed, or does not trust this node
 *  INCOMPATIBLE  both: another content digest (offer: than the other ranks'); take: fingerprints, layouts or versions do not agree: so will another
 *  BUSY          both: the blocks are held, until another operation is released. offer: the key has one: withdraw that, or use another key.
 *                take: this part of this take_id runs, or as many engines take as it has consumers
 *  QUOTA         both: a limit, which is named: let others end first, or ask for less at once
 *  TIMEOUT       both: the daemon does not answer. take: its time passed, or ranks of a scheduler's engine did not come back: take again
 *  CANCELLED     take: this part of this take_id was begun again, through another node
 *  PEER_GONE     take: the other engine or daemon died, closed, gave its memory back, or is out of reach: take again, or compute
 *  RESTARTED     both: see the top of this file: submit again
 *  UNAVAILABLE   both: the daemon drains, or a rank of this engine is gone, or its memory is: later again. take: invalid memory at the other
 *                side: later again; or no transport leads there (kvpipectl explain says why)
 *  CORRUPT       take: what came was not what was sent, or memory faulted: take again
 *  CLOSED        both: the session is over: connect again, unless the message says that a newer instance took its place
 * A submission that returns an error has no completion. */
KVPIPE_API int kvpipe_offer(kvpipe_t *kv, const struct kvpipe_offer_opts *opts, kvpipe_op_t *op);
KVPIPE_API int kvpipe_take(kvpipe_t *kv, const struct kvpipe_take_opts *opts, kvpipe_op_t *op);

/* Copies an offer's token, also of one that has ended, until kvpipe_op_free(). *len: the room in token, then the token's
 * length; KVPIPE_MAX_TOKEN bytes always suffice. */
KVPIPE_API int kvpipe_offer_token(kvpipe_t *kv, kvpipe_op_t offer, void *token, uint32_t *len);

/* Small operations on an offer of this session. Each waits for the daemon's answer, at most timeout_ns (0: 5 s).
 * extend, seal: nothing is added to an offer that has ended: EXPIRED (its lease ran out, it was withdrawn or consumed), or the
 * reason for which it failed; the text says which offer it was, and how it ended. -KVPIPE_E_TIMEOUT: it may be part of the offer all
 * the same, or come to be: withdraw before you write these blocks.
 * withdraw: *reusable (may be NULL) says whether the blocks are free now; else RELEASED follows. KVPIPE_NOWAIT: returns 0 as
 * soon as the daemon can see it. What the daemon thinks of it is told to nobody then; the offer's own end still comes. */
KVPIPE_API int kvpipe_offer_extend(kvpipe_t *kv, kvpipe_op_t offer, const struct kvpipe_extend_opts *opts, int64_t timeout_ns);
KVPIPE_API int kvpipe_offer_seal(kvpipe_t *kv, kvpipe_op_t offer, int64_t timeout_ns);
KVPIPE_API int kvpipe_offer_withdraw(kvpipe_t *kv, kvpipe_op_t offer, int64_t timeout_ns, int *reusable);

/* Cancels an operation of this session and waits for its end, at most timeout_ns (0: 5 s; KVPIPE_NOWAIT: does not wait).
 * *reusable (may be NULL): 1, the memory is yours now (also when the operation had ended before); 0, RELEASED follows.
 * -KVPIPE_E_TIMEOUT: the daemon has not answered; the operation ends all the same, by its deadline at the latest. */
KVPIPE_API int kvpipe_cancel(kvpipe_t *kv, kvpipe_op_t op, int64_t timeout_ns, int *reusable);

/* A queued request's consumer: watch renews the offer's lease before there are blocks, drop says that nothing is
 * needed, so that the producer's blocks are free at once. Both complete like operations (DONE, or FAILED); a watch once there
 * is an offer. */
struct kvpipe_key_opts {
	size_t sz;
	const void *key;
	uint32_t key_len;
	uint32_t token_len;
	const void *token;
	const char *peer;            /* as for take */
	const char *trace;
	uint64_t tag;
	int64_t timeout_ns;          /* 0: 5 s; for watch also how long the interest lasts (0: 30 s); cut as a take's */
	uint64_t reserved[4];
};
KVPIPE_API int kvpipe_watch(kvpipe_t *kv, const struct kvpipe_key_opts *opts, kvpipe_op_t *op);
KVPIPE_API int kvpipe_drop(kvpipe_t *kv, const struct kvpipe_key_opts *opts, kvpipe_op_t *op);

/* ---- completions ------------------------------------------------------------------------------------------ */
enum kvpipe_status {
	KVPIPE_DONE = 1,         /* terminal: all bytes placed, checked and visible (take); consumed (offer) */
	KVPIPE_FAILED = 2,       /* terminal: see reason, message and failed runs */
	KVPIPE_CANCELLED = 3,    /* terminal: cancelled or withdrawn by its owner */
	KVPIPE_RELEASED = 4,     /* after a terminal completion with KVPIPE_C_MORE: the memory is yours */
	KVPIPE_QUARANTINED = 5,  /* the memory cannot be fenced yet; RELEASED follows */
};

enum kvpipe_completion_flags {
	KVPIPE_C_MORE = 1u << 0,    /* the memory may still be touched: RELEASED follows */
	KVPIPE_C_FOREIGN = 1u << 1, /* of an operation that another session of the engine submitted: op is 0 */
};

struct kvpipe_run { uint32_t group, first, count; }; /* block ids first .. first+count-1 of a group */

struct kvpipe_completion {
	kvpipe_op_t op;          /* 0 when KVPIPE_C_FOREIGN */
	uint64_t op_id;          /* node-wide id of the operation, the same for every session concerned */
	uint64_t tag;
	uint64_t bytes;          /* of this rank (0 of an offer); all ranks' for the session that asked */
	uint32_t status;         /* enum kvpipe_status */
	uint32_t reason;         /* enum kvpipe_reason */
	uint32_t flags;          /* enum kvpipe_completion_flags */
	uint32_t rank;           /* tp_rank + pp_rank * tp_world of the session it is for; 0xffffffff scheduler */
	uint32_t epoch;          /* daemon incarnation */
	uint32_t nfailed;        /* of FAILED: destination (take) runs whose content must not be used; after CANCELLED, which names none, no block's may */
	const struct kvpipe_run *failed;  /* valid until the next kvpipe_poll()/kvpipe_wait() of the calling thread */
	const char *message;     /* never NULL; same lifetime */
	uint64_t reserved[4];
};

/* Moves up to cap completions to out, oldest first; returns how many. Never blocks. Each completion is seen by poll
 * once, unless kvpipe_wait() (a terminal one) or kvpipe_wait_released() (a RELEASED one) saw it first. A session whose
 * completions nobody collects, others' (KVPIPE_C_FOREIGN) included, is refused new operations (QUOTA) before anything is
 * lost; its own completions are never held up by others'. Of a session that is over all of them come first, then why it is. */
KVPIPE_API int kvpipe_poll(kvpipe_t *kv, struct kvpipe_completion *out, uint32_t cap);

/* Waits for the terminal completion of an operation of this session, at most timeout_ns. Several threads may wait.
 * -KVPIPE_E_TIMEOUT: still running. An operation can be waited for until kvpipe_op_free(): from then on this and the next three return
 * -KVPIPE_E_NOT_FOUND. */
KVPIPE_API int kvpipe_wait(kvpipe_t *kv, kvpipe_op_t op, int64_t timeout_ns, struct kvpipe_completion *out);
/* Waits until the operation's memory may be reused (0), at once when its end said so; -KVPIPE_E_TIMEOUT: not yet. */
KVPIPE_API int kvpipe_wait_released(kvpipe_t *kv, kvpipe_op_t op, int64_t timeout_ns);
/* Waits until the given layer of a KVPIPE_OP_LAYERED take is in place (0), or the take failed (its negative reason); of others, and of
 * layers that it does not have, -KVPIPE_E_INVALID.
 * layer is the model's number, as in the session's views; for a scheduler's take it counts the layers of all its ranks,
 * from 0. No layer of a take that lacks blocks is in place before its end. The take's completion stays for kvpipe_wait() or kvpipe_poll(). */
KVPIPE_API int kvpipe_wait_layer(kvpipe_t *kv, kvpipe_op_t take, uint32_t layer, int64_t timeout_ns);
KVPIPE_API int kvpipe_op_released(kvpipe_t *kv, kvpipe_op_t op);  /* 1: released, 0: not yet, < 0: error */
/* Forgets an operation's record; every operation has one until this call, 65,536 at most (QUOTA). A running one goes on;
 * its completions then come by kvpipe_poll() alone, as foreign. Completions of a released one that nobody collected are
 * forgotten with it. */
KVPIPE_API void kvpipe_op_free(kvpipe_t *kv, kvpipe_op_t op);

/* ---- tensors ------------------------------------------------------------------------------------------------ */
/* Element types. Values never change. Names are those of torch and numpy (ml_dtypes for what numpy itself lacks). */
enum kvpipe_dtype {
	KVPIPE_BOOL = 1,         /* one byte, 0 or 1 */
	KVPIPE_U8 = 2,
	KVPIPE_I8 = 3,
	KVPIPE_U16 = 4,
	KVPIPE_I16 = 5,
	KVPIPE_U32 = 6,
	KVPIPE_I32 = 7,
	KVPIPE_U64 = 8,
	KVPIPE_I64 = 9,
	KVPIPE_F16 = 10,
	KVPIPE_BF16 = 11,
	KVPIPE_F32 = 12,
	KVPIPE_F64 = 13,
	KVPIPE_F8_E4M3FN = 14,
	KVPIPE_F8_E5M2 = 15,
	KVPIPE_F8_E4M3FNUZ = 16,
	KVPIPE_F8_E5M2FNUZ = 17,
	KVPIPE_F8_E8M0FNU = 18,
};

KVPIPE_API uint32_t kvpipe_dtype_size(uint32_t dtype);          /* bytes of an element; 0: unknown */
KVPIPE_API const char *kvpipe_dtype_name(uint32_t dtype);       /* "bfloat16", "float8_e4m3fn", ...; static; NULL: unknown */
KVPIPE_API uint32_t kvpipe_dtype_parse(const char *name);       /* the other way; 0: unknown */

#define KVPIPE_MAX_DIMS 16u

enum kvpipe_tensor_flags {
	KVPIPE_TENSOR_STRIDED = 1u << 0, /* strides count; without it the elements lie in C order, one after the other */
};

/* A tensor in memory that this process can read. Its bytes are its elements in C order, whatever the strides. */
struct kvpipe_tensor {
	size_t sz;
	uint32_t dtype;                    /* enum kvpipe_dtype */
	uint32_t ndim;                     /* 0 (one element) to KVPIPE_MAX_DIMS */
	uint64_t shape[KVPIPE_MAX_DIMS];   /* elements; entries from ndim on are ignored. A 0 makes a tensor without bytes. */
	int64_t strides[KVPIPE_MAX_DIMS];  /* bytes from one element to the next of that dimension; 0 and below are allowed */
	void *data;                        /* the element at index 0, 0, ...; may be NULL when there are no bytes */
	uint32_t flags;                    /* enum kvpipe_tensor_flags */
	uint32_t reserved0;
	uint64_t reserved[2];
};

/* ---- pipes and lookup buffers --------------------------------------------------------------------------------
 * A pipe carries tensors from one sender to one receiver, in order. A lookup buffer keeps entries of up to five tensors at its
 * owner until a selecting end asks for one by its tokens. Either end may be opened first, in one process or in two, on one
 * node or on two; the one that gets names the node of the other with `peer`.
 *
 *  - An end has a connection of its own to the daemon, beside the session's that it was opened on, and memory of its own. The
 *    sending side holds at most `capacity` bytes that nobody has received yet, and waits for room beyond that; a slow receiver
 *    slows nobody else. None (a NULL tensor) and tensors without bytes are values like others and take no room.
 *  - The memory behind a capacity is a quarter and 64 KiB larger, present from the start, and twice that at a receiving end. An item with
 *    bytes takes whole blocks of it: of 256 bytes, doubled with the capacity from 128 MiB on to 4096, and beyond 100 GiB to 65,536; its
 *    tensors begin at multiples of 64. So small items may fill the blocks before the capacity, and there are 262,139 items at a time at
 *    most; an item of 1,700 bytes in five tensors never waits for anything but the capacity, or that. What ran out is said. A capacity is
 *    at most 2^40 bytes, and an item 4,294,967,231, whatever the capacity.
 *  - A name lives on its node. `token` (16 to 32 bytes, or none): both ends must give the same.
 *  - What was published stays receivable for `linger` after its end was closed or its process died, then the receiver gets
 *    CLOSED or PEER_GONE. What is in a pipe or buffer does not survive its daemon: RESTARTED.
 *  - An item or entry comes once, but where the receiving end's daemon ends just as it hands it out, or the two nodes cannot reach
 *    each other from then on for longer than 20 s: the next receiver, or another query, may get it again.
 *  - Closing the session closes its ends: calls on them return CLOSED. Each end still must be given to its own close.
 *  - All functions may be called from any thread, several at a time; closing lets the calls of other threads end first, with
 *    CLOSED. Times are how long a call waits: 0 is a try, KVPIPE_FOREVER is refused.
 *  - A receiving end makes its memory when the first item with bytes is there, in the call that finds it (a recv, a query's wait, also as a
 *    try); other calls on that end, kvpipe_lookup_select() too, wait for that. It takes as long as to write all of that memory, and up to
 *    a second more while the daemon does not answer. An event loop that must not stand still has another thread receive the first item. */
typedef struct kvpipe_pipe kvpipe_pipe_t;
typedef struct kvpipe_lookup kvpipe_lookup_t;
typedef struct kvpipe_query kvpipe_query_t;
typedef struct kvpipe_msg kvpipe_msg_t;  /* what was received: one tensor of a pipe, up to five of a lookup buffer */

enum kvpipe_end { KVPIPE_SEND = 1, KVPIPE_RECV = 2 };

struct kvpipe_pipe_opts {
	size_t sz;
	const char *name;            /* 1 to 256 bytes */
	uint32_t end;                /* enum kvpipe_end */
	uint32_t flags;              /* 0 */
	uint64_t capacity;           /* SEND: bytes, 0: 64 MiB; RECV: 0 */
	const void *token;           /* NULL: anybody of this node, and of its peers, may open the other end */
	uint32_t token_len;          /* 0, or 16 to 32 */
	uint32_t window;             /* RECV: items that are fetched ahead of the caller, 0: 64, at most 1024; 1: none ahead */
	const char *peer;            /* RECV: the sender's node, by name or "host:port"; NULL: this one. SEND: NULL */
	int64_t linger_ns;           /* SEND: 0: 10 s; cut to the daemon's max_lease */
	uint64_t reserved[4];
};

/* Opens one end of a pipe on a session's node. Waits for this node's daemon alone, at most 5 s. Errors: BUSY (the name has a
 * sender, or a receiver, that lives, or items of one that is gone wait still: for how long is said), DENIED (token), QUOTA (pipes
 * of this engine), UNAVAILABLE (the daemon is away, and not back in time), TIMEOUT (it is there, and does not answer: once it
 * does, it may find this open first, so that the next one is BUSY for a moment). If it ends before it has answered, the next
 * one is asked, within the same time. What only the sender's node can know comes with the first recv. */
KVPIPE_API int kvpipe_pipe_open(kvpipe_t *kv, const struct kvpipe_pipe_opts *opts, kvpipe_pipe_t **out);

/* Sends a tensor, or None (t NULL): copies it, so that t is the caller's again, and waits only for room. TIMEOUT: no room in
 * time, nothing was sent. INVALID at once: larger than the capacity, or than an item may be. A send that failed later (the daemon was restarted, is being
 * drained, or has a limit of items below the library's) is the error of every following call: nothing is sent behind it. */
KVPIPE_API int kvpipe_pipe_send(kvpipe_pipe_t *p, const struct kvpipe_tensor *t, int64_t timeout_ns);

/* Receives the next item; *out is the caller's until kvpipe_msg_free(). TIMEOUT: it has not come; it stays the next one, and
 * nothing is lost. CLOSED: the sender closed the pipe and everything was received. PEER_GONE: the sender died, or an item that it
 * sent was not taken by its daemon, likewise: what was sent before was received. RESTARTED: this node's daemon ends. */
KVPIPE_API int kvpipe_pipe_recv(kvpipe_pipe_t *p, int64_t timeout_ns, kvpipe_msg_t **out);

/* Readable when a try (recv or send with timeout 0) may succeed, from the moment on that one has returned TIMEOUT. For poll and
 * epoll, level-triggered; owned by the pipe, which has it until it or its session is closed: do not read or close it. Negative: an error,
 * CLOSED when that was before. */
KVPIPE_API int kvpipe_pipe_fd(kvpipe_pipe_t *p);

/* SEND: waits until everything that was sent before the call was fetched by the receiving end, where it may lie unread for a while (its
 * window). TIMEOUT: not all of it was in time. INVALID: of the RECV end. CLOSED: this end was closed. Any other: what became of something
 * that was sent, as of kvpipe_pipe_send(). */
KVPIPE_API int kvpipe_pipe_flush(kvpipe_pipe_t *p, int64_t timeout_ns);

/* Closes an end. SEND: what was sent stays receivable for linger, then the receiver gets CLOSED. RECV: the next receiver goes on
 * with what was not fetched yet; what was fetched ahead is lost (window 1: at most one, which a recv that timed out had asked for and which
 * came after that). Messages stay valid. Calls of other threads end with CLOSED first. Waits for the daemon at most 5 s, as kvpipe_close().
 * NULL is allowed. */
KVPIPE_API void kvpipe_pipe_close(kvpipe_pipe_t *p);

struct kvpipe_lookup_opts {
	size_t sz;
	const char *name;            /* 1 to 256 bytes */
	uint64_t capacity;           /* bytes: the owner's end; 0: a selecting end */
	const void *token;
	uint32_t token_len;
	uint32_t flags;              /* 0 */
	const char *peer;            /* selecting end: the owner's node; NULL: this one */
	int64_t linger_ns;           /* owner: 0: 10 s; cut to the daemon's max_lease */
	uint64_t reserved[4];
};

enum kvpipe_lookup_match {
	KVPIPE_PREFIX = 1,  /* one of the two sequences of tokens begins with the other */
	KVPIPE_EXACT = 2,   /* they are equal */
};

/* Opens an end of a lookup buffer: one owner, any number of selecting ends. As kvpipe_pipe_open(). */
KVPIPE_API int kvpipe_lookup_open(kvpipe_t *kv, const struct kvpipe_lookup_opts *opts, kvpipe_lookup_t **out);

/* Owner: inserts an entry {tokens, roi, key, value, hidden}; each may be NULL (None). Copies, and waits only while the capacity
 * is exceeded. It is found by its tokens under roi (kvpipe_lookup_select); without tokens only by a query for anything.
 * INVALID: larger than the capacity, or than an item may be, or tokens or roi are not such (below). An entry that could not be kept after all (QUOTA: the
 * daemon's limit of items, or 67,108,864 tokens of all entries together) is the error of a following call, once for all that were lost
 * until then, whose number it says; others stay. */
KVPIPE_API int kvpipe_lookup_insert(kvpipe_lookup_t *l, const struct kvpipe_tensor *const members[5], int64_t timeout_ns);

/* Selecting end: asks for the oldest entry that matches, and removes it from the buffer; waits for one to come until timeout_ns
 * (0: 30 s; at most 30 days) has passed. Returns at once; any number of queries may be outstanding. Of an end's 1,360 (fewer where the
 * daemon's limits.inflight is less) look for entries at a time, and none of these waits for another; further ones wait for some to end,
 * in order, within their own time.
 * tokens: one dimension of any integer dtype, each 0 to 2^32 - 1; roi: bool or uint8 of the same length, which of them count, or
 * NULL for all; at least one must count, at most 262,144. Both NULL: any entry. match: enum kvpipe_lookup_match.
 * Errors: INVALID (of the owner's end, too), TIMEOUT (the daemon takes no submission within a second), QUOTA (no memory), and why this end is
 * over: CLOSED, RESTARTED, DENIED (token). */
KVPIPE_API int kvpipe_lookup_select(kvpipe_lookup_t *l, const struct kvpipe_tensor *tokens, const struct kvpipe_tensor *roi,
				    uint32_t match, int64_t timeout_ns, kvpipe_query_t **out);

/* By key (1 .. KVPIPE_MAX_KEY bytes), beside the entries with tokens. put (owner) replaces what the key had, for every get
 * that begins after it returned; get (selecting end) leaves it there, and waits for the key to come as select does. value NULL:
 * None. put: the old value stays until the new one is there, so where both together are more than the capacity there is never room (TIMEOUT). What
 * the daemon refuses (QUOTA) is the put's error, and the key keeps what it had. TIMEOUT also when the daemon does not say in time, or half a
 * second, that it knows of it: it replaces what the key had once the daemon goes on. */
KVPIPE_API int kvpipe_lookup_put(kvpipe_lookup_t *l, const void *key, uint32_t key_len, const struct kvpipe_tensor *value,
				 int64_t timeout_ns);
KVPIPE_API int kvpipe_lookup_get(kvpipe_lookup_t *l, const void *key, uint32_t key_len, int64_t timeout_ns,
				 kvpipe_query_t **out);

/* Waits for a query's end, at most timeout_ns (0: look). 0: *out is what it found, the caller's until kvpipe_msg_free(), once.
 * TIMEOUT while it still runs, and at its end when nothing matched in time: after that, and after any other end, a further
 * wait gives NOT_FOUND. When the daemon does not answer the query ends half a second after its time; an entry that the daemon turns out
 * to have had for it is then what a further wait gives. */
KVPIPE_API int kvpipe_query_wait(kvpipe_query_t *q, int64_t timeout_ns, kvpipe_msg_t **out);
/* 1: it has ended, 0: it runs. It only looks: what waits for memory, or for other queries, goes on in a wait, of whichever query. */
KVPIPE_API int kvpipe_query_done(const kvpipe_query_t *q);
/* Forgets a query, and cancels it if it still runs, also when it ended because the daemon did not answer: an entry that is on its way
 * at that moment is lost. NULL is allowed, and so is a query whose end was closed. */
KVPIPE_API void kvpipe_query_free(kvpipe_query_t *q);

/* Readable when a try (a query's wait, an insert, a put) may succeed; as kvpipe_pipe_fd(), errors and end included. */
KVPIPE_API int kvpipe_lookup_fd(kvpipe_lookup_t *l);
/* Closes an end, as kvpipe_pipe_close(). Owner: entries stay selectable for linger. Selecting end: its queries end with CLOSED. NULL is
 * allowed. */
KVPIPE_API void kvpipe_lookup_close(kvpipe_lookup_t *l);

/* What was received. Its memory is its own and lives until kvpipe_msg_free(), also past the close of its end; as all memory that
 * the daemon writes it is not inherited by forked children. Any thread may use and free it. */
KVPIPE_API uint32_t kvpipe_msg_count(const kvpipe_msg_t *m);    /* members: 1, or 5 of an entry of a lookup buffer */
/* Describes member i; set out->sz before. 1: a tensor, in C order at a multiple of 64 bytes, writable; 0: None; -KVPIPE_E_INVALID: there is
 * none, i is not below the count. */
KVPIPE_API int kvpipe_msg_tensor(const kvpipe_msg_t *m, uint32_t i, struct kvpipe_tensor *out);
/* Tokens that agreed with the query's; those of the entry for a query for anything. 0: there are none, or it was found by its key. */
KVPIPE_API uint64_t kvpipe_msg_matched(const kvpipe_msg_t *m);
KVPIPE_API void kvpipe_msg_free(kvpipe_msg_t *m);               /* NULL is allowed */

/* ---- about -------------------------------------------------------------------------------------------------- */
struct kvpipe_probe {
	size_t sz;
	uint32_t abi_lib, abi_daemon;         /* ring protocol versions; daemon's is 0 without a session */
	uint64_t features;                    /* bits of the session, see kvpipe/ring.h */
	uint32_t max_ids, max_views, max_regions, max_inflight, max_groups, max_key;
	uint64_t max_pinned_bytes;            /* per session; 0 unknown without a session */
	uint64_t ops;                         /* bit n: opcode n of kvpipe/ring.h is understood */
	uint64_t reserved[8];
};
/* What library and daemon can do. Set out->sz to sizeof(*out) before; NULL asks for the library's own limits, without a
 * daemon. Never blocks. */
KVPIPE_API int kvpipe_probe(kvpipe_t *kv_or_null, struct kvpipe_probe *out);

KVPIPE_API const char *kvpipe_version(void);                 /* "0.1.0" */
KVPIPE_API const char *kvpipe_strerror(int code);            /* either sign; static text */
KVPIPE_API const char *kvpipe_last_error(void);              /* of the calling thread; valid until its next call */

#define KVPIPE_OPTS(type, ...) ((struct type){ .sz = sizeof(struct type), __VA_ARGS__ })

#ifdef __cplusplus
}
#endif
#endif
