/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpipe.h - hand KV-cache blocks from one inference engine to another.
 *
 * A process opens a session with the node's daemon (kvpiped), registers memory and describes how its KV cache lies
 * in that memory. Then it offers blocks under a key, or takes the blocks of a key into blocks of its own. The
 * daemons move the bytes.
 *
 * Conventions
 *  - A function that can fail returns 0 (or a count) on success and a negative KVPIPE_E_* code on failure.
 *    kvpipe_last_error() then tells the calling thread what was wrong and what to do. This documentation leaves the
 *    prefix out: TIMEOUT is -KVPIPE_E_TIMEOUT as a return value, and KVPIPE_E_TIMEOUT as the reason of a completion.
 *  - Option structs begin with their own size. Initialise them with KVPIPE_OPTS(type, .field = value, ...). A newer
 *    library accepts older structs; an older library accepts newer structs whose unknown tail is zero. Reserved
 *    fields must be zero and are checked.
 *  - Times are relative, in nanoseconds, of type int64_t. 0 means the default that is named at the field or
 *    function. Where none is named, as for kvpipe_wait*, 0 means: look, do not wait.
 *  - Every operation has a deadline, so operations refuse KVPIPE_FOREVER. kvpipe_wait* allow it; there it means 30 s
 *    past the operation's own deadline. Nothing waits for ever.
 *  - A function that can block says so, and for how long at most. While the daemon does not answer, it may be half a
 *    second more.
 *  - A function that waits for the daemon's answer fails with UNAVAILABLE if no daemon has the session in its time,
 *    and with TIMEOUT if the one that has it does not answer. Any function fails with INVALID for a wrong argument,
 *    and once the session is over with CLOSED, or with the reason for which the next daemon refused it. What else can
 *    be wrong, and where it is not so, is said at the function.
 *  - Pointers passed in are borrowed until the call returns, unless a comment says otherwise.
 *  - Any thread may call any function. Calls on one session serialise inside where they must. Do not use a handle
 *    while another thread closes it, or afterwards. A thread that is cancelled (pthread_cancel) inside a call ends
 *    after that call.
 *  - After fork() the child must not use the parent's handles: every call there returns CLOSED, and kvpipe_close()
 *    only frees the child's own memory.
 *
 * Memory rules ("May I reuse this buffer?")
 *  - An offer is a shared hold on its source blocks, from submission until RELEASED: do not write them.
 *  - A take is an exclusive hold on its destination blocks, from submission until RELEASED: do not touch them.
 *  - A terminal completion (DONE, FAILED, CANCELLED) without KVPIPE_C_MORE means released: nothing touches the
 *    memory any more. With KVPIPE_C_MORE exactly one RELEASED completion follows (perhaps with QUARANTINED before
 *    it).
 */
/*
 * When the daemon is restarted, the session goes on by itself: handles, regions, layout and live offers stay valid.
 * kvpipe_connected() returns 0 until the next daemon is there. What the application sees:
 *  - Offers, watches, drops, and takes to which no byte was granted go on as if nothing had happened. The lease of
 *    an offer begins anew.
 *  - A take with bytes granted ends FAILED with RESTARTED, without KVPIPE_C_MORE: its memory is free. Take again.
 *    (When the other node's daemon ends, the reason is PEER_GONE: this side cannot wait to see whether that daemon
 *    comes back.)
 *  - A scheduler's offer or take ends FAILED with RESTARTED when another worker has replaced one that it was about,
 *    when a rank invalidated memory at the new daemon before the scheduler was back there, or when the scheduler
 *    itself came back too late. It ends FAILED with UNAVAILABLE when a rank of this engine is
 *    missing on this node. RESTARTED also comes without a restart: for an offer or take that was submitted before
 *    such a worker came, and that the daemon reads after it.
 *  - Whatever is submitted in the meantime waits for the next daemon. If none comes, it ends at its deadline
 *    (TIMEOUT; an offer EXPIRED). Cancelling and withdrawing take effect at once. Calls that wait for an answer wait
 *    until their own timeout.
 *  - A session is over when another instance of the engine has replaced it meanwhile, or when the next daemon
 *    refuses it: every call says why. Pipes and lookup buffers are always over (RESTARTED): open them again.
 *
 * A daemon that hangs is not a daemon that is gone. Operations end at their deadlines with KVPIPE_C_MORE, and
 * RELEASED follows when the daemon runs again or is killed.
 */
#ifndef KVPIPE_H
#define KVPIPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVPIPE_API __attribute__((visibility("default")))

/* Version of this header. kvpipe_version() tells that of the library. */
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
#define KVPIPE_MAX_INFLIGHT 4096u    /* unreleased operations per session; also at most a third of its cq_entries */
#define KVPIPE_MAX_CONSUMERS 256u    /* consumers of one offer; parts of one take */

#define KVPIPE_NO_BLOCK 0xffffffffu  /* a position of a block list that has no block */
#define KVPIPE_FOREVER INT64_MAX
#define KVPIPE_NOWAIT INT64_MIN      /* timeout of extend, seal, withdraw, cancel: submit, do not wait for the answer */

/* ---- errors and reasons ----------------------------------------------------------------------------------
 * One numbering serves return values (negative) and reasons of completions (positive). Values never change. */
enum kvpipe_reason {
	KVPIPE_OK = 0,
	KVPIPE_E_INVALID = 1,       /* an argument or a record is malformed or out of range */
	KVPIPE_E_NOT_FOUND = 2,     /* no such key, peer, region or operation, or a needed block was not offered */
	KVPIPE_E_EXPIRED = 3,       /* the offer's lease ran out, or it was withdrawn or consumed */
	KVPIPE_E_DENIED = 4,        /* wrong token, not your engine, peer not allowed, socket permission */
	KVPIPE_E_INCOMPATIBLE = 5,  /* fingerprint, layout, content digest, ABI or protocol versions do not agree */
	KVPIPE_E_BUSY = 6,          /* a conflicting hold, a key in use, a region with work in flight */
	KVPIPE_E_QUOTA = 7,         /* a limit of the session, the engine or the daemon is reached */
	KVPIPE_E_TIMEOUT = 8,       /* the deadline passed */
	KVPIPE_E_CANCELLED = 9,     /* cancelled by its owner */
	KVPIPE_E_PEER_GONE = 10,    /* the other engine or daemon died, or its node cannot be reached */
	KVPIPE_E_RESTARTED = 11,    /* this node's daemon restarted while bytes were granted, or since then another
	                             * worker has come, or a rank has given memory up */
	KVPIPE_E_UNAVAILABLE = 12,  /* no daemon, daemon draining, own rank gone, transport not allowed or absent,
	                             * invalid memory */
	KVPIPE_E_CORRUPT = 13,      /* a checksum did not agree, even after retries, or memory faulted */
	KVPIPE_E_CLOSED = 14,       /* this session was closed, or ended by the daemon with a reason */
};

/* ---- sessions -------------------------------------------------------------------------------------------- */
typedef struct kvpipe kvpipe_t;  /* one session; owned by the caller until kvpipe_close() */
typedef uint64_t kvpipe_op_t;    /* names an operation within its session; never reused; 0 is none */
typedef uint64_t kvpipe_region_t;/* names a region within its session; never reused; 0 is none */

enum kvpipe_role {
	KVPIPE_ROLE_WORKER = 1,     /* owns memory and blocks of one rank */
	KVPIPE_ROLE_SCHEDULER = 2,  /* owns no memory; offers and takes for all ranks of its engine on this node */
};

struct kvpipe_connect_opts {
	size_t sz;
	const char *socket;       /* NULL: $KVPIPE_SOCKET if set; else /run/kvpipe/kvpiped.sock, then the --dev
	                           * default. A socket below /tmp/kvpipe-UID, named by you or not, is used only if
	                           * that directory is the user's alone (0700) and the listener runs as the user;
	                           * else DENIED */
	const char *engine_id;    /* required, at most KVPIPE_MAX_ID bytes */
	const char *instance;     /* NULL: join the live instance of this engine and owner, or begin a new one */
	uint32_t role;            /* enum kvpipe_role; required */
	uint32_t tp_rank, pp_rank;    /* ignored for schedulers */
	uint32_t tp_world, pp_world;  /* 0 is 1 */
	uint32_t sq_entries;      /* power of two, at most 65,536; 0: 1024 */
	uint32_t cq_entries;      /* power of two, 8 to 65,536; 0: 4096. At most a third of them (1,365 by default) can be
	                           * unreleased operations. A larger ring takes more of the daemon's memory for the
	                           * session (its limits.ring_memory) */
	uint32_t flags;           /* 0 */
	int64_t timeout_ns;       /* 0: 5 s */
	uint64_t reserved[4];
};

/* Opens a session with the node's daemon. *out is the session, the caller's until kvpipe_close().
 *
 * Blocks at most opts->timeout_ns.
 *
 * Errors:
 *  - UNAVAILABLE: no daemon (the message says how to start it), one that does not answer in time, or a sandbox forbids
 *    eventfd2.
 *  - DENIED: no permission for the socket (the message names the group or user that has it).
 *  - INCOMPATIBLE: no common ABI version (the message names both sides' versions), another tp_world or pp_world than
 *    that of the instance's other ranks, or who listens is no kvpiped.
 *  - BUSY: that rank of that instance has a session.
 *  - CLOSED: another instance of the engine has replaced the one that is named.
 *  - QUOTA: a limit of the daemon (sessions, the rings' memory), or this process may open no more files; the message
 *    says which. */
KVPIPE_API int kvpipe_connect(const struct kvpipe_connect_opts *opts, kvpipe_t **out);

/* Ends a session and frees its handle. The daemon fences whatever still touches the session's memory, then forgets
 * the session. Its offers and takes end with it. Its ends of pipes and lookup buffers end too, but each of their
 * handles must still be closed. The session's memory regions are unmapped.
 *
 * NULL is allowed. Closing a handle twice cannot be detected once it is freed, so set yours to NULL.
 *
 * Blocks until the fence, or for 5 s at most, however many ends there are. A daemon that hangs for longer may go on
 * with what it had begun when it runs again, until it has fenced or is killed. Memory from kvpipe_mem_alloc() is no
 * concern by then: nobody here has it any more. Do not use the memory of registered fds, or adopted memory, for
 * anything else before that. If you must know that nothing touches it, call kvpipe_mem_unregister() first. */
KVPIPE_API void kvpipe_close(kvpipe_t *kv);

/* What the session knows of its daemon. The strings are owned by the session. None of these calls blocks.
 *  - kvpipe_connected(): 1 while the daemon answers, else 0; 1 again after its restart.
 *  - kvpipe_node(): the node's name.
 *  - kvpipe_instance(): the engine instance.
 *  - kvpipe_advertise(): "host:port" that other nodes dial, or ""; may be another one after a restart. */
KVPIPE_API int kvpipe_connected(const kvpipe_t *kv);
KVPIPE_API const char *kvpipe_node(const kvpipe_t *kv);
KVPIPE_API const char *kvpipe_instance(const kvpipe_t *kv);
KVPIPE_API const char *kvpipe_advertise(const kvpipe_t *kv);

/* Returns a file descriptor that is readable whenever kvpipe_poll() may have something to report. It may be readable
 * while there is no completion. Once the session is over it stays readable, and kvpipe_poll() says why.
 *
 * The descriptor is the session's until the session is closed: do not read or close it. Level-triggered epoll works,
 * since kvpipe_poll() drains it. From the first call on, the daemon rings for every completion; a session that only
 * waits is a little cheaper without.
 *
 * A negative return value means no session, or a session of the parent's after fork(). */
KVPIPE_API int kvpipe_fd(const kvpipe_t *kv);

/* ---- memory ----------------------------------------------------------------------------------------------- */
enum kvpipe_mem_flags {
	KVPIPE_MEM_HUGE = 1u << 0,     /* huge pages or an error; without this flag: huge pages if there are any */
	KVPIPE_MEM_NO_HUGE = 1u << 1,  /* never huge pages */
};

/* Allocates nbytes of shared memory (a sealed memfd, prefaulted, left out of core dumps, not inherited by fork),
 * maps it in this process and registers it. *addr is page aligned and lives until kvpipe_mem_unregister().
 *
 * Errors:
 *  - QUOTA: no memory, no huge pages, or a limit of the daemon; the message says which.
 *  - UNAVAILABLE: the daemon is away and not back in time, or a sandbox forbids memfd_create; the message says
 *    which.
 *
 * Takes as long as the kernel needs to provide the pages. Waits for the daemon at most 5 s. */
KVPIPE_API int kvpipe_mem_alloc(kvpipe_t *kv, uint64_t nbytes, uint32_t flags, void **addr, kvpipe_region_t *region);

/* Registers the first nbytes of a memfd that the caller made. The memfd must be sealed against shrinking, fully
 * allocated (sparse files are refused), and open for reading and writing; else INVALID, with what is missing. The fd
 * is duplicated. flags must be 0.
 *
 * The caller maps the memfd, and keeps the mapping out of core dumps and forked children (MADV_DONTDUMP,
 * MADV_DONTFORK). The daemon keeps the whole memfd: all of it counts against the daemon's limits, once for each
 * region.
 *
 * When the process dies, the daemon gives back to the system whatever part of the nbytes its finished offers do not
 * need, unless another region lies in the memfd. That part then reads as zeros for others who have the memfd too.
 *
 * Waits for the daemon at most 5 s. QUOTA: a limit of the daemon; the message says which. */
KVPIPE_API int kvpipe_mem_register_fd(kvpipe_t *kv, int fd, uint64_t nbytes, uint32_t flags, kvpipe_region_t *region);

enum kvpipe_adopt_flags {
	KVPIPE_ADOPT_QUIESCED = 1u << 0, /* during the call nobody writes the memory, not even a system call */
};

struct kvpipe_adopt_opts {
	size_t sz;
	void *addr;          /* the first byte */
	uint64_t nbytes;     /* exactly these bytes become the region: its offset 0 is *addr */
	uint32_t flags;      /* enum kvpipe_adopt_flags */
	uint32_t reserved0;
	uint64_t reserved[4];
};

/* Makes a region of memory that the program already has, without moving it. The call puts a memfd under the pages
 * (sealed, and left out of core dumps, like that of kvpipe_mem_alloc()). Pointers to the memory stay good. The
 * memory stays the program's. Do not free or unmap it while it is registered; free it as usual afterwards. Never
 * resize it again.
 *
 * What can be adopted: private anonymous memory whose pages hold nothing else. That is bytes that fill their pages;
 * a mapping of just these pages; or, from its beginning, one allocation of glibc that has a mapping of its own
 * (malloc() of at least M_MMAP_THRESHOLD bytes).
 *
 * During the call:
 *  - Other threads may read and write the memory, and lose nothing (userfaultfd). They wait while up to 64 MiB at a
 *    time are moved, which takes tens of milliseconds.
 *  - If the process uses CUDA, it is asked about each page, which takes about a third of a second for 1 GiB.
 *  - A system call that writes there may fail with EFAULT, unless the process may use userfaultfd without
 *    UFFD_USER_MODE_ONLY.
 *  - Where there is no userfaultfd, only KVPIPE_ADOPT_QUIESCED works.
 *  - Do not fork().
 *
 * Afterwards, even past the region's end and after a call that failed, until the program frees the memory:
 *  - No realloc() and no mremap(), nor anything that calls them. Bytes that the memory grew by would lie behind the
 *    end of the memfd, and touching them is SIGBUS. Allocate anew and copy.
 *  - Forked children share the memory instead of getting a copy.
 *  - It has transparent huge pages only where shmem has them.
 *  - It lies where new memory of the calling thread does (set_mempolicy(), or its NUMA node). What mbind() said of
 *    these pages before is forgotten.
 *  - It may be adopted again.
 *  - Do not set glibc.malloc.tcache_max (GLIBC_TUNABLES) above the size of such an allocation: glibc 2.43 and later
 *    would keep the memory when it is freed, and hand it, as it is, to a later malloc().
 *
 * Errors (all of the memory stays usable):
 *  - INVALID: memory of files, shared, locked, executable, of a stack, of the brk heap, in which CUDA has registered a
 *    page, or with others' data on the edge pages. The message says what to do. Other pins cannot be seen (RDMA,
 *    io_uring buffers, what CUDA registered of less than a page): take those after adopting.
 *  - BUSY: adopted already.
 *  - UNAVAILABLE: no userfaultfd, or no daemon.
 *  - QUOTA: no memory (64 MiB more are needed during the call), no free descriptor, or the daemon's limit.
 *  - TIMEOUT: the daemon did not answer.
 *
 * Waits for the daemon at most 5 s. */
KVPIPE_API int kvpipe_mem_adopt(kvpipe_t *kv, const struct kvpipe_adopt_opts *opts, kvpipe_region_t *region);

/* Takes a region away from the daemon. Operations that use it are ended and fenced first. Memory from
 * kvpipe_mem_alloc() is unmapped; adopted memory stays.
 *
 * Waits at most timeout_ns (0: 5 s), also for a daemon that was told of the memory after a restart but does not have
 * the session. After UNAVAILABLE the region is still registered, and comes back with the daemon.
 *
 * Errors:
 *  - TIMEOUT: it may have begun. If so, operations that use the region have ended, and new ones are refused
 *    (NOT_FOUND, if the layout names the region). The memory is still the daemon's, too, until another call
 *    succeeds.
 *  - BUSY: operations wait for a daemon that refuses the session because of a quota; or another thread invalidates,
 *    revalidates or unregisters the region.
 *
 * After a restart the daemon may refuse the session because of a quota. Regions can then be taken away without that
 * daemon, to make the session smaller, unless operations wait for it. */
KVPIPE_API int kvpipe_mem_unregister(kvpipe_t *kv, kvpipe_region_t region, int64_t timeout_ns);

/* Gives up a region's content and pages for a while, for an engine that sleeps. The region's id, its address and the
 * layout stay. kvpipe_mem_revalidate() brings the memory back.
 *
 * First, all offers and takes of this session's blocks are ended (FAILED with UNAVAILABLE) and fenced: those
 * submitted here before the call, a scheduler session's, and what a dead session has left. Then the daemon unmaps
 * the region, and its bytes count against no limit. Until kvpipe_mem_revalidate(), new offers and takes fail with
 * UNAVAILABLE if a layout names the region, a scheduler's too.
 *
 * Memory from kvpipe_mem_alloc() goes back to the system and stays mapped. Do not touch it: a write takes new pages,
 * which the next invalidation or unregistration frees. The memory of a registered fd, and adopted memory, is left as
 * it is. After this call, give its pages back with fallocate(FALLOC_FL_PUNCH_HOLE) or MADV_REMOVE, or keep them.
 * Allocate all of it again before you revalidate the region.
 *
 * Returns 0 at once if the region is already invalid. While the daemon is away (one that is stopping is waited for to
 * be gone) and no operation waits for it, the call needs no daemon: the region is invalid for the next one too. That
 * one ends what a scheduler brings along from before (UNAVAILABLE or RESTARTED), even if the memory is back by then.
 *
 * Waits at most timeout_ns (0: 5 s).
 *
 * Errors:
 *  - TIMEOUT: it may have begun. Call again.
 *  - UNAVAILABLE: the daemon is away and not back in time, and operations wait for it. The region is what it was.
 *  - INCOMPATIBLE: the daemon is too old for this call.
 *  - BUSY: another thread invalidates, revalidates or unregisters the region. */
KVPIPE_API int kvpipe_mem_invalidate(kvpipe_t *kv, kvpipe_region_t region, int64_t timeout_ns);

/* Brings an invalid region back. Memory from kvpipe_mem_alloc() is allocated and prefaulted again, at its address.
 * Memory of a registered fd must be there already, all of it (sparse files are refused, INVALID). The daemon then
 * maps the region as when it was registered, and the layout holds again. The content is undefined.
 *
 * Returns 0 at once if the region is valid.
 *
 * Waits for the daemon at most timeout_ns (0: 5 s), not counting the time the kernel needs to provide the pages.
 *
 * Errors (after all but UNAVAILABLE the region stays invalid, and its pages with the system):
 *  - QUOTA: no memory, or a limit of the daemon; the message says which.
 *  - UNAVAILABLE: the daemon is away and not back in time. The region is valid here, and comes back with the daemon.
 *  - TIMEOUT, INCOMPATIBLE, BUSY: as for kvpipe_mem_invalidate(). */
KVPIPE_API int kvpipe_mem_revalidate(kvpipe_t *kv, kvpipe_region_t region, int64_t timeout_ns);

/* ---- layout ----------------------------------------------------------------------------------------------- */
enum kvpipe_view_kind {
	KVPIPE_VIEW_PAGED = 1,   /* blocks of block_size tokens */
	KVPIPE_VIEW_OPAQUE = 2,  /* blocks that only move whole (SSM state): content_bytes each */
};

/* How one layer's part lies in a region. The element (block b, token slot t, head h) occupies the content_bytes at
 *   base + b * block_stride + t * token_stride + (h - first_head) * head_stride.
 * Views of a group may lie in one place (layers that share their KV). What is taken into such views must lie in one
 * place at its source, too, or the take ends INCOMPATIBLE. Views of a group that have the same shape and begin at
 * different bytes must not overlap in any element, or the layout is refused (INVALID).
 *
 * The struct is 128 bytes, and crosses to the daemon as it is. */
struct kvpipe_view {
	uint64_t region;         /* kvpipe_region_t */
	uint64_t base;           /* bytes from the region's start */
	uint64_t num_blocks;     /* block ids are 0 .. num_blocks-1 */
	uint64_t block_stride;   /* bytes */
	uint64_t token_stride;   /* bytes; 0 for opaque */
	uint64_t head_stride;    /* bytes; 0 for opaque */
	uint64_t content_bytes;  /* paged: bytes of one token of one head; opaque: of one block */
	uint32_t layer;          /* the model's own layer number */
	uint32_t group;          /* a block id means the same block in all views of a group; at most
	                          * KVPIPE_MAX_GROUPS - 1 */
	uint32_t kind;           /* enum kvpipe_view_kind */
	uint32_t block_size;     /* tokens per block; opaque: tokens that one block stands for, or 0 */
	uint32_t first_head;     /* model-wide index of the first kv head held here */
	uint32_t heads;          /* heads held here; 1 for MLA */
	uint32_t total_heads;    /* kv heads of the model; the same on all ranks of all engines that exchange */
	char part[16];           /* "kv", "k", "v", "index", ...: 1 to 15 printable ASCII bytes, no spaces,
	                          * NUL-padded */
	uint32_t reserved[7];
};

struct kvpipe_field {        /* one field of a fingerprint; both strings are required */
	const char *key;
	const char *value;
};

/* Sets the session's layout. Workers call it once, before the session's first operation.
 *
 * views are the nviews parts of the KV cache. fingerprint is nfields fields that name what must agree with the other
 * side, field by field: model, revision, dtype, scale mode, layers, kv heads, head size, ...; never a local path.
 *
 * Once a region of the layout is unregistered, the session can use neither this layout nor another one, even after a
 * restart of the daemon.
 *
 * Errors:
 *  - INVALID: names the view and what is wrong with it. A layout that was refused may be set again, corrected.
 *  - TIMEOUT: the daemon does not answer, and may have the layout. The very same one may be set again.
 *
 * Waits for the daemon at most 5 s. */
KVPIPE_API int kvpipe_set_layout(kvpipe_t *kv, const struct kvpipe_view *views, uint32_t nviews,
				 const struct kvpipe_field *fingerprint, uint32_t nfields);

/* Reports how far this rank is. value is step << 16 | phase, where phase is 0 at the start of a step, l + 1 when the
 * rank's l-th layer is written, and 0xffff when the step is saved. The value never moves back: a smaller one is
 * ignored.
 *
 * For workers: a scheduler has no rank (INVALID). Fails once the session is over for good. Does not block: it is a
 * store and, when the daemon waits for the value, a wake-up. */
KVPIPE_API int kvpipe_progress(kvpipe_t *kv, uint64_t value);

/* ---- operations ------------------------------------------------------------------------------------------- */
/* Block ids of one group. Entry i of the list holds the tokens of the group's block number first_token / block_size
 * + i, so the list has ceil((first_token + ntokens) / block_size) - first_token / block_size entries. Exactly the
 * tokens [first_token, first_token + ntokens) are read or written. Lists of opaque groups pair by position.
 * One list is for all ranks that an operation is for: they have blocks of one size in that group (else INVALID). */
struct kvpipe_blocks {
	uint32_t group;
	uint32_t first_token;
	uint32_t ntokens;
	uint32_t count;          /* entries in ids */
	const uint32_t *ids;     /* KVPIPE_NO_BLOCK where a position has no block */
};

enum kvpipe_op_flags {
	KVPIPE_OP_SEALED = 1u << 0,   /* offer: nothing will be added */
	KVPIPE_OP_LAYERED = 1u << 1,  /* extend: ready layer by layer; take: report each layer (kvpipe_wait_layer) */
};

struct kvpipe_offer_opts {
	size_t sz;
	const void *key;             /* 1 .. KVPIPE_MAX_KEY bytes */
	uint32_t key_len;
	uint32_t token_len;          /* 0: the library draws a random token of 16 bytes */
	const void *token;
	const struct kvpipe_blocks *blocks;
	uint32_t nblocks;            /* groups in blocks; 0 for an offer that will be extended */
	uint32_t flags;              /* KVPIPE_OP_SEALED, KVPIPE_OP_LAYERED */
	uint32_t consumers;          /* engines that will take it; 0 is 1 */
	uint32_t content_len;
	const void *content;         /* digest that both sides must agree on, or NULL */
	const char *trace;           /* shown in the logs of both nodes, or NULL */
	uint64_t after;              /* blocks are ready once every rank's progress has reached it */
	uint64_t tag;                /* comes back in the completions of every session concerned */
	int64_t lease_ns;            /* 0: the daemon's default_lease (30 s by default), or 30 s while the daemon is
	                              * away; cut to its max_lease (10 min by default), refused beyond 30 days */
	uint64_t reserved[4];
};

struct kvpipe_extend_opts {
	size_t sz;
	const struct kvpipe_blocks *blocks;  /* appended: each starts at the token where the offer ended. An offer
	                                      * has at most 4,096 pieces, including the first. For an opaque group
	                                      * only one piece may have blocks (else INVALID): the one after which
	                                      * they are final. If ranks offer for themselves under one key, their
	                                      * pieces of one number have the same tokens (INVALID if a piece reaches
	                                      * into another rank's earlier or later one) */
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
	const void *token;           /* the offer's token */
	const char *peer;            /* node name or "host:port" hint; NULL or "": this node */
	const struct kvpipe_blocks *blocks;
	uint32_t nblocks;
	uint32_t flags;              /* KVPIPE_OP_LAYERED */
	uint32_t part, parts;        /* part i of n of one take; parts 0 is 1 */
	uint64_t take_id;            /* with instance and part it makes the take idempotent; 0: the library draws one */
	uint32_t content_len;
	uint32_t reserved0;
	const void *content;
	const char *trace;
	uint64_t after;              /* no byte lands before every rank's progress has reached it */
	uint64_t tag;
	int64_t timeout_ns;          /* the operation's deadline; 0: 30 s; cut to 1 h, refused beyond 30 days */
	uint64_t reserved[4];
};

/* Submit an offer or a take. *op names the operation. Keys and blocks are copied.
 *
 * Both return as soon as the daemon can see the operation; its outcome comes as its completion. They block only
 * while the queue is full: for at most 100 ms, then BUSY. A submission that returns an error has no completion.
 *
 * An offer completes once: DONE when consumed, FAILED (EXPIRED) when its lease ran out, CANCELLED when withdrawn. A
 * sealed offer whose blocks were all written (progress has reached "after") outlives its process: by the daemon's
 * orphan_lease, or by the rest of its lease if that is shorter. An offer that the engine's next instance makes under
 * the same key takes its place. kvpipe_close(), in contrast, withdraws offers.
 *
 * The reason of a FAILED completion, and what to do. Where there are several causes, the message says which it was:
 *  - INVALID. Both: the blocks are not of the layout, or there is no layout. Offer: its ranks extended it unequally.
 *    Take: there is no such part. Correct it.
 *  - NOT_FOUND. Both: memory of the layout was unregistered; open a new session. Take: no such peer; or no offer
 *    came under the key in time; or the offer lacks blocks (failed): compute those.
 *  - EXPIRED. Offer: its lease ran out, or the engine's next instance came; offer again what is still wanted. Take:
 *    the offer is over (withdrawn, consumed by others, replaced, not renewed); have it made anew.
 *  - DENIED. Both: wrong token (offer: not that of the other ranks). Take: the peer is not allowed, or does not
 *    trust this node.
 *  - INCOMPATIBLE. Both: another content digest (offer: than that of the other ranks). Take: fingerprints, layouts
 *    or versions do not agree; another take would fail, too.
 *  - BUSY. Both: the blocks are held until another operation is released. Offer: the key has an offer; withdraw
 *    that, or use another key. Take: this part of this take_id is running, or as many engines are taking the offer
 *    as it has consumers.
 *  - QUOTA. Both: the limit that the message names; let other operations end first, or ask for less at once.
 *  - TIMEOUT. Both: the daemon does not answer. Take: its time passed, or ranks of a scheduler's engine did not come
 *    back; take again.
 *  - CANCELLED. Take: this part of this take_id was begun again through another node.
 *  - PEER_GONE. Take: the other engine or daemon died, closed, gave its memory back, or is out of reach; take again,
 *    or compute.
 *  - RESTARTED. Both: see "When the daemon is restarted" at the top of kvpipe.h; submit again.
 *  - UNAVAILABLE. Both: the daemon drains, or a rank of this engine or its memory is gone; try later. Take: the
 *    other side's memory is invalid, or one of the two daemons has no certificate; try later. Or no transport leads
 *    there (kvpipectl explain says why).
 *  - CORRUPT. Take: what arrived is not what was sent, or memory faulted; take again.
 *  - CLOSED. Both: the session is over; connect again, unless the message says that a newer instance took its place. */
KVPIPE_API int kvpipe_offer(kvpipe_t *kv, const struct kvpipe_offer_opts *opts, kvpipe_op_t *op);
KVPIPE_API int kvpipe_take(kvpipe_t *kv, const struct kvpipe_take_opts *opts, kvpipe_op_t *op);

/* Copies an offer's token. Before the call *len is the room at token, in bytes; after it, the token's length.
 * KVPIPE_MAX_TOKEN bytes always suffice. Works after the offer has ended, too, until kvpipe_op_free(). Does not
 * block. */
KVPIPE_API int kvpipe_offer_token(kvpipe_t *kv, kvpipe_op_t offer, void *token, uint32_t *len);

/* Extend, seal or withdraw an offer of this session. extend adds the blocks of opts; seal says that nothing more
 * will be added; withdraw ends the offer. withdraw sets *reusable (may be NULL) to 1 if the blocks are free now.
 * Otherwise it sets 0, and RELEASED follows.
 *
 * Each waits for the daemon's answer, at most timeout_ns (0: 5 s). With KVPIPE_NOWAIT each returns 0 as soon as the
 * daemon can see the request. Nobody is told the daemon's answer then; the offer's own end still comes.
 *
 * Errors of extend and seal:
 *  - EXPIRED, or the reason for which the offer failed: it has ended (its lease ran out, it was withdrawn or
 *    consumed). The message names the offer and says how it ended.
 *  - QUOTA: 65,536 extensions and seals of the session are not answered yet.
 *  - TIMEOUT, also without a daemon: the extension may be part of the offer all the same, or become so. Withdraw the
 *    offer before you write these blocks. */
KVPIPE_API int kvpipe_offer_extend(kvpipe_t *kv, kvpipe_op_t offer, const struct kvpipe_extend_opts *opts, int64_t timeout_ns);
KVPIPE_API int kvpipe_offer_seal(kvpipe_t *kv, kvpipe_op_t offer, int64_t timeout_ns);
KVPIPE_API int kvpipe_offer_withdraw(kvpipe_t *kv, kvpipe_op_t offer, int64_t timeout_ns, int *reusable);

/* Cancels an operation of this session. *reusable (may be NULL) is set to 1 if its memory is yours now, also when it
 * had ended before, and to 0 if RELEASED follows.
 *
 * Waits for the operation's end, at most timeout_ns (0: 5 s; KVPIPE_NOWAIT: does not wait). TIMEOUT: the daemon has
 * not answered. The operation ends all the same, by its deadline at the latest. */
KVPIPE_API int kvpipe_cancel(kvpipe_t *kv, kvpipe_op_t op, int64_t timeout_ns, int *reusable);

/* What the consumer of a queued request says about a key. watch renews the offer's lease for a consumer that has no
 * blocks yet. drop says that nothing of it is needed, so the producer's blocks are free at once. Both return as
 * kvpipe_take() does, and complete like operations (DONE or FAILED). A watch completes once there is an offer. */
struct kvpipe_key_opts {
	size_t sz;
	const void *key;
	uint32_t key_len;
	uint32_t token_len;
	const void *token;
	const char *peer;            /* as for a take */
	const char *trace;
	uint64_t tag;
	int64_t timeout_ns;          /* how long the answer may take; for a watch also how long the interest lasts.
	                              * 0: 5 s for a drop, 30 s for a watch. Cut as a take's */
	uint64_t reserved[4];
};
KVPIPE_API int kvpipe_watch(kvpipe_t *kv, const struct kvpipe_key_opts *opts, kvpipe_op_t *op);
KVPIPE_API int kvpipe_drop(kvpipe_t *kv, const struct kvpipe_key_opts *opts, kvpipe_op_t *op);

/* ---- completions ------------------------------------------------------------------------------------------ */
enum kvpipe_status {
	KVPIPE_DONE = 1,         /* terminal. Take: all bytes are placed, checked and visible. Offer: consumed */
	KVPIPE_FAILED = 2,       /* terminal: see reason, message and the failed runs */
	KVPIPE_CANCELLED = 3,    /* terminal: cancelled or withdrawn by its owner */
	KVPIPE_RELEASED = 4,     /* after a terminal completion with KVPIPE_C_MORE: the memory is yours */
	KVPIPE_QUARANTINED = 5,  /* the memory cannot be fenced yet; RELEASED follows */
};

enum kvpipe_completion_flags {
	KVPIPE_C_MORE = 1u << 0,    /* the memory may still be touched: RELEASED follows */
	KVPIPE_C_FOREIGN = 1u << 1, /* another session of the engine submitted the operation: op is 0 */
};

struct kvpipe_run { uint32_t group, first, count; }; /* block ids first .. first+count-1 of a group */

struct kvpipe_completion {
	kvpipe_op_t op;          /* 0 when KVPIPE_C_FOREIGN */
	uint64_t op_id;          /* node-wide id of the operation; every session concerned sees the same */
	uint64_t tag;
	uint64_t bytes;          /* the rank's own (0 for an offer); for the session that asked, those of all ranks */
	uint32_t status;         /* enum kvpipe_status */
	uint32_t reason;         /* enum kvpipe_reason */
	uint32_t flags;          /* enum kvpipe_completion_flags */
	uint32_t rank;           /* of the session it is for: tp_rank + pp_rank * tp_world; 0xffffffff: scheduler */
	uint32_t epoch;          /* the daemon's incarnation */
	uint32_t nfailed;        /* FAILED take: number of runs of destination blocks whose content must not be
	                          * used. CANCELLED names none: no block's content may be used */
	const struct kvpipe_run *failed;  /* valid until the calling thread's next kvpipe_poll() or kvpipe_wait() */
	const char *message;     /* never NULL; valid as long as failed */
	uint64_t reserved[4];
};

/* Moves up to cap completions, oldest first, to out, and returns how many. Never blocks.
 *
 * poll sees each completion once, unless kvpipe_wait() (a terminal one) or kvpipe_wait_released() (a RELEASED one)
 * saw it first. Collect all of them, others' (KVPIPE_C_FOREIGN) included: a session that does not is refused new
 * operations (QUOTA) before anything is lost. Its own completions are never held up by others'.
 *
 * When the session is over, its completions come first, then the error that says why. */
KVPIPE_API int kvpipe_poll(kvpipe_t *kv, struct kvpipe_completion *out, uint32_t cap);

/* Waits for the terminal completion of an operation of this session, at most timeout_ns, and writes it to out (may
 * be NULL). Several threads may wait.
 *
 * TIMEOUT: still running. NOT_FOUND: the operation is unknown or was freed. An operation can be waited for until
 * kvpipe_op_free(); from then on this function and the next three return NOT_FOUND. */
KVPIPE_API int kvpipe_wait(kvpipe_t *kv, kvpipe_op_t op, int64_t timeout_ns, struct kvpipe_completion *out);
/* Waits until the operation's memory may be reused, at most timeout_ns. Returns 0 at once when the terminal
 * completion said so. TIMEOUT: not yet. */
KVPIPE_API int kvpipe_wait_released(kvpipe_t *kv, kvpipe_op_t op, int64_t timeout_ns);
/* Waits until one layer of a KVPIPE_OP_LAYERED take is in place, at most timeout_ns. layer is the model's number, as
 * in the session's views. For a scheduler's take it counts the layers of all its ranks, from 0.
 *
 * Returns 0 when the layer is in place, and the take's negative reason if the take failed. INVALID: the take is not
 * layered, or does not have that layer. TIMEOUT: not yet. No layer of a take that lacks blocks is in place before
 * its end. The take's completion stays for kvpipe_wait() or kvpipe_poll(). */
KVPIPE_API int kvpipe_wait_layer(kvpipe_t *kv, kvpipe_op_t take, uint32_t layer, int64_t timeout_ns);
KVPIPE_API int kvpipe_op_released(kvpipe_t *kv, kvpipe_op_t op);  /* 1: released, 0: not yet, < 0: error */
/* Forgets an operation's record. Every operation has one until this call; a session has at most 65,536 (QUOTA). A
 * running operation goes on, and its completions then come by kvpipe_poll() alone, as foreign ones. Completions of a
 * released operation that nobody collected are forgotten with it. */
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

KVPIPE_API uint32_t kvpipe_dtype_size(uint32_t dtype);          /* bytes of an element; 0: unknown type */
KVPIPE_API const char *kvpipe_dtype_name(uint32_t dtype);       /* "bfloat16", "float8_e4m3fn", ...; static; NULL: unknown */
KVPIPE_API uint32_t kvpipe_dtype_parse(const char *name);       /* the type of that name; 0: unknown name */

#define KVPIPE_MAX_DIMS 16u

enum kvpipe_tensor_flags {
	KVPIPE_TENSOR_STRIDED = 1u << 0, /* strides count; else the elements lie in C order, one after the other */
};

/* A tensor in memory that this process can read. Its bytes are its elements in C order, whatever the strides. */
struct kvpipe_tensor {
	size_t sz;
	uint32_t dtype;                    /* enum kvpipe_dtype */
	uint32_t ndim;                     /* 0 (one element) to KVPIPE_MAX_DIMS */
	uint64_t shape[KVPIPE_MAX_DIMS];   /* elements per dimension; entries from ndim on are ignored. A 0 makes a
	                                    * tensor without bytes */
	int64_t strides[KVPIPE_MAX_DIMS];  /* bytes between neighbouring elements of a dimension; may be 0 or
	                                    * negative */
	void *data;                        /* the element at index 0, 0, ...; may be NULL when there are no bytes */
	uint32_t flags;                    /* enum kvpipe_tensor_flags */
	uint32_t reserved0;
	uint64_t reserved[2];
};

/* ---- pipes and lookup buffers --------------------------------------------------------------------------------
 * A pipe carries tensors from one sender to one receiver, in order. A lookup buffer keeps entries of up to five
 * tensors at its owner until a selecting end asks for one by its tokens. Either end may be opened first, in one
 * process or in two, on one node or on two. The end that gets names the node of the other with `peer`.
 *
 *  - Connection. Each end has its own connection to the daemon, beside that of the session it was opened on, and its
 *    own memory.
 *  - Flow control. The sending side holds at most `capacity` bytes that nobody has received yet, and waits for room
 *    beyond that. A slow receiver slows nobody else. None (a NULL tensor) and tensors without bytes are values like
 *    others, and take no room.
 *  - Memory. The memory behind a capacity is a quarter plus 64 KiB larger, present from the start, and twice that at
 *    a receiving end. An item with bytes takes whole blocks of it. Blocks have 256 bytes; from a capacity of 128 MiB
 *    on they double with it up to 4096, and beyond 100 GiB up to 65,536. An item's tensors begin at multiples of 64.
 *    So small items may fill the blocks before the capacity is reached, and there are at most 262,139 items at a
 *    time. Items of 1,700 bytes in five tensors never wait for anything but the capacity or that number. The message
 *    says what ran out.
 *  - Limits. A capacity is at most 2^40 bytes. An item is at most 4,294,967,231 bytes, whatever the capacity.
 *  - Name and token. A name lives on its node. Both ends must give the same `token` (16 to 32 bytes, or none).
 *  - Lifetime. What was published stays receivable for `linger` after its end was closed or its process died. Then
 *    the receiver gets CLOSED or PEER_GONE. The content of a pipe or buffer does not survive its daemon: RESTARTED.
 *  - Delivery. An item or entry comes once, with one exception: the next receiver, or another query, may get it
 *    again if the receiving end's daemon ends just as it hands the item out, or if the two nodes cannot reach each
 *    other from then on for longer than 20 s.
 *  - Closing. Closing the session closes its ends: calls on them return CLOSED. Each end must still be given to its
 *    own close.
 *  - Threads. Any number of threads may call the functions at the same time. A close first lets the calls of other
 *    threads end, with CLOSED.
 *  - Times say how long a call waits: 0 is a try, and KVPIPE_FOREVER is refused.
 *  - First item. A receiving end makes its memory when the first item with bytes is there, in the call that finds
 *    the item (a recv, or a query's wait, also as a try). Other calls on that end, kvpipe_lookup_select() too, wait
 *    meanwhile. It takes as long as writing all of that memory, and up to a second more while the daemon does not
 *    answer. An event loop that must not stall lets another thread receive the first item. */
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
	uint64_t capacity;           /* SEND: bytes; 0: 64 MiB. RECV: 0 */
	const void *token;           /* NULL: anybody on this node and its peers may open the other end */
	uint32_t token_len;          /* 0, or 16 to 32 */
	uint32_t window;             /* RECV: items fetched ahead of the caller; 0: 64; 1: none ahead; at most 1024 */
	const char *peer;            /* RECV: the sender's node, by name or "host:port"; NULL: this one. SEND: NULL */
	int64_t linger_ns;           /* SEND: 0: 10 s; cut to the daemon's max_lease */
	uint64_t reserved[4];
};

/* Opens one end of a pipe on a session's node. *out is the caller's until kvpipe_pipe_close().
 *
 * Waits for this node's daemon alone, at most 5 s, not counting the time the kernel needs to provide the memory of a
 * sending end. If that daemon ends before it has answered, the call asks the next one within the same time. Errors
 * that only the sender's node can know come with the first recv.
 *
 * Errors:
 *  - BUSY: the name already has a live sender (or receiver), or items of a sender that is gone still wait (the
 *    message says for how long).
 *  - DENIED: wrong token.
 *  - QUOTA: the limit of pipes for this engine, or one of kvpipe_connect(), since an end has a connection of its own.
 *  - UNAVAILABLE: the daemon is away and not back in time.
 *  - TIMEOUT: the daemon is there and does not answer. Once it does, it may find this open first, so the next one is
 *    BUSY for a moment. */
KVPIPE_API int kvpipe_pipe_open(kvpipe_t *kv, const struct kvpipe_pipe_opts *opts, kvpipe_pipe_t **out);

/* Sends a tensor, or None (t NULL). It is copied, so t is the caller's again at return. Waits only for room, at most
 * timeout_ns.
 *
 * Errors:
 *  - TIMEOUT: there was no room in time. Nothing was sent.
 *  - INVALID, at once: larger than the capacity, or than an item may be.
 *  - The error of an earlier send. A send can fail after it returned, when the daemon was restarted, is being
 *    drained, or has a limit of items below the library's. Every following call then returns that error: nothing is
 *    sent behind the lost item. */
KVPIPE_API int kvpipe_pipe_send(kvpipe_pipe_t *p, const struct kvpipe_tensor *t, int64_t timeout_ns);

/* Receives the next item, and waits for it at most timeout_ns. *out is the caller's until kvpipe_msg_free().
 *
 * Errors:
 *  - TIMEOUT: it has not come. It stays the next one, and nothing is lost.
 *  - CLOSED: the sender closed the pipe, and everything was received.
 *  - PEER_GONE: the sender died, or its daemon did not take an item that it sent. What was sent before was received.
 *    Or the other node was out of reach, and it is not known whether the same sender is still there. Open the end
 *    again: what was not received may still come.
 *  - QUOTA: there is no memory for the item, which is lost as below, or it is larger than the capacity on which this
 *    end was opened. The message says which. Open the end again.
 *  - INCOMPATIBLE: this version of the library does not understand the item, which is lost, with what was fetched
 *    ahead of the caller (window). Open the end again for what follows.
 *  - RESTARTED: this node's daemon ends. */
KVPIPE_API int kvpipe_pipe_recv(kvpipe_pipe_t *p, int64_t timeout_ns, kvpipe_msg_t **out);

/* Returns a file descriptor for poll and epoll (level-triggered). Once a try (recv or send with timeout 0) has
 * returned TIMEOUT, the descriptor is readable when another try may succeed.
 *
 * The descriptor is the pipe's until the pipe or its session is closed: do not read or close it. A negative return
 * value is an error; CLOSED if the pipe or session was closed before. */
KVPIPE_API int kvpipe_pipe_fd(kvpipe_pipe_t *p);

/* SEND: waits, at most timeout_ns, until the receiving end has fetched everything that was sent before the call. The
 * items may still lie unread there for a while (its window).
 *
 * Errors:
 *  - TIMEOUT: not all of it was fetched in time.
 *  - INVALID: this is the RECV end.
 *  - CLOSED: this end was closed.
 *  - Any other: what became of something that was sent, as for kvpipe_pipe_send(). */
KVPIPE_API int kvpipe_pipe_flush(kvpipe_pipe_t *p, int64_t timeout_ns);

/* Closes an end. SEND: what was sent stays receivable for linger, then the receiver gets CLOSED. RECV: the next
 * receiver goes on with what was not fetched yet. What was fetched ahead is lost; with window 1 that is at most one
 * item, which a recv that timed out had asked for and which came later. Messages stay valid. NULL is allowed.
 *
 * First, calls of other threads end with CLOSED. Waits for the daemon at most 5 s, as kvpipe_close(). */
KVPIPE_API void kvpipe_pipe_close(kvpipe_pipe_t *p);

struct kvpipe_lookup_opts {
	size_t sz;
	const char *name;            /* 1 to 256 bytes */
	uint64_t capacity;           /* the owner's end: bytes; 0: a selecting end */
	const void *token;
	uint32_t token_len;
	uint32_t flags;              /* 0 */
	const char *peer;            /* selecting end: the owner's node; NULL: this one. Owner: NULL */
	int64_t linger_ns;           /* owner: 0: 10 s; cut to the daemon's max_lease */
	uint64_t reserved[4];
};

enum kvpipe_lookup_match {
	KVPIPE_PREFIX = 1,  /* one of the two sequences of tokens begins with the other */
	KVPIPE_EXACT = 2,   /* they are equal */
};

/* Opens an end of a lookup buffer: one owner, any number of selecting ends. *out is the caller's until
 * kvpipe_lookup_close(). Waits and errors are those of kvpipe_pipe_open(). */
KVPIPE_API int kvpipe_lookup_open(kvpipe_t *kv, const struct kvpipe_lookup_opts *opts, kvpipe_lookup_t **out);

/* Owner: inserts an entry {tokens, roi, key, value, hidden}. Each member may be NULL (None). Members are copied.
 * kvpipe_lookup_select() finds the entry by its tokens under roi; an entry without tokens is found only by a query
 * for anything.
 *
 * Waits only while the capacity is exceeded, at most timeout_ns.
 *
 * Errors:
 *  - INVALID: the entry is larger than the capacity, or than an item may be; or tokens or roi are not as
 *    kvpipe_lookup_select() wants them.
 *  - QUOTA: entries could not be kept after all, because of the daemon's limit of items, or because all entries
 *    together exceed 67,108,864 tokens. A following call reports it, once for all entries lost until then, and says
 *    how many. Other entries stay. */
KVPIPE_API int kvpipe_lookup_insert(kvpipe_lookup_t *l, const struct kvpipe_tensor *const members[5], int64_t timeout_ns);

/* Selecting end: asks for the oldest entry that matches, and removes it from the buffer. Returns at once. *out is a
 * query, the caller's until kvpipe_query_free(); it waits for an entry for timeout_ns (0: 30 s; at most 30 days).
 *
 * tokens has one dimension, of any integer dtype, with values of 0 to 2^32 - 1. roi is bool or uint8 of the same
 * length, and says which tokens count; NULL: all. At least one token must count, and at most 262,144. With both NULL
 * any entry matches. match is an enum kvpipe_lookup_match.
 *
 * Any number of queries may be outstanding. At most 1,360 queries of an end (fewer if the daemon's limits.inflight
 * is lower) look for entries at a time, and none of these waits for another. Further queries wait for some to end,
 * in order, within their own time.
 *
 * Errors:
 *  - INVALID: also when this is the owner's end.
 *  - TIMEOUT: the daemon takes no submission within a second.
 *  - QUOTA: no memory.
 *  - CLOSED, RESTARTED, DENIED (token): why this end is over. */
KVPIPE_API int kvpipe_lookup_select(kvpipe_lookup_t *l, const struct kvpipe_tensor *tokens, const struct kvpipe_tensor *roi,
				    uint32_t match, int64_t timeout_ns, kvpipe_query_t **out);

/* Store and fetch a value by key (key_len is 1 .. KVPIPE_MAX_KEY bytes), separately from the entries with tokens.
 * put (owner) replaces the key's value for every get that begins after put returned; value NULL: None. get
 * (selecting end) waits for the key to come, as kvpipe_lookup_select() does, and leaves the value there.
 *
 * put keeps the old value until the new one is there. If both together exceed the capacity, there is never room
 * (TIMEOUT).
 *
 * Errors of put:
 *  - What the daemon refuses (QUOTA): the key keeps its value.
 *  - TIMEOUT: no room in time. Or the daemon does not say in time, or within half a second if that is longer, that
 *    it knows of the new value; the value is replaced once the daemon goes on. */
KVPIPE_API int kvpipe_lookup_put(kvpipe_lookup_t *l, const void *key, uint32_t key_len, const struct kvpipe_tensor *value,
				 int64_t timeout_ns);
KVPIPE_API int kvpipe_lookup_get(kvpipe_lookup_t *l, const void *key, uint32_t key_len, int64_t timeout_ns,
				 kvpipe_query_t **out);

/* Waits for a query's end, at most timeout_ns (0: look).
 *
 * 0: *out is what the query found, once; the caller's until kvpipe_msg_free(). TIMEOUT: the query still runs, or it
 * has ended because nothing matched in time. After that end, and after any other, a further wait returns NOT_FOUND.
 *
 * If the daemon does not answer, the query ends half a second after its time. If it turns out that the daemon had an
 * entry for it, a further wait returns that entry. */
KVPIPE_API int kvpipe_query_wait(kvpipe_query_t *q, int64_t timeout_ns, kvpipe_msg_t **out);
/* 1: the query has ended, 0: it runs. It only looks: what waits for memory, or for other queries, goes on in a wait,
 * of whichever query. */
KVPIPE_API int kvpipe_query_done(const kvpipe_query_t *q);
/* Forgets a query, and cancels it if it still runs, also if it ended because the daemon did not answer. An entry
 * that is on its way at that moment is lost. NULL is allowed, and so is a query whose end was closed. */
KVPIPE_API void kvpipe_query_free(kvpipe_query_t *q);

/* Returns a file descriptor that is readable when a try (a query's wait, an insert, a put) may succeed. Use, errors
 * and end of it as for kvpipe_pipe_fd(). */
KVPIPE_API int kvpipe_lookup_fd(kvpipe_lookup_t *l);
/* Closes an end, as kvpipe_pipe_close() does. Owner: entries stay selectable for linger. Selecting end: its queries
 * end with CLOSED. NULL is allowed. */
KVPIPE_API void kvpipe_lookup_close(kvpipe_lookup_t *l);

/* A received message. Its memory is its own, and lives until kvpipe_msg_free(), even past the close of its end. As
 * all memory that the daemon writes, it is not inherited by forked children. Any thread may use and free it. */
KVPIPE_API uint32_t kvpipe_msg_count(const kvpipe_msg_t *m);    /* members: 1; 5 for an entry of a lookup buffer */
/* Describes member i; set out->sz before. Returns 1 for a tensor (writable, in C order, at a multiple of 64 bytes),
 * 0 for None, and INVALID if i is not below the count. */
KVPIPE_API int kvpipe_msg_tensor(const kvpipe_msg_t *m, uint32_t i, struct kvpipe_tensor *out);
/* Number of tokens that agree with the query's; for a query for anything, of the entry's tokens. 0: it has none, or
 * was found by its key. */
KVPIPE_API uint64_t kvpipe_msg_matched(const kvpipe_msg_t *m);
KVPIPE_API void kvpipe_msg_free(kvpipe_msg_t *m);               /* NULL is allowed */

/* ---- about -------------------------------------------------------------------------------------------------- */
struct kvpipe_probe {
	size_t sz;
	uint32_t abi_lib, abi_daemon;         /* ring protocol versions; without a session the daemon's is 0 */
	uint64_t features;                    /* bits granted to the session, see kvpipe/ring.h */
	uint32_t max_ids, max_views, max_regions, max_inflight, max_groups, max_key;
	uint64_t max_pinned_bytes;            /* per session; 0: unknown without a session */
	uint64_t ops;                         /* bit n: opcode n of kvpipe/ring.h is understood */
	uint64_t reserved[8];
};
/* Says what library and daemon can do. Set out->sz to sizeof(*out) before. NULL in place of a session asks for the
 * library's own limits, without a daemon. Never blocks. */
KVPIPE_API int kvpipe_probe(kvpipe_t *kv_or_null, struct kvpipe_probe *out);

KVPIPE_API const char *kvpipe_version(void);                 /* "0.1.0" */
KVPIPE_API const char *kvpipe_strerror(int code);            /* either sign; static text */
KVPIPE_API const char *kvpipe_last_error(void);              /* of the calling thread; valid until its next call */

#define KVPIPE_OPTS(type, ...) ((struct type){ .sz = sizeof(struct type), __VA_ARGS__ })

#ifdef __cplusplus
}
#endif
#endif
