/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpipe/barrier.h - all memory ordering between library and daemon.
 *
 * ACQUIRE: no later access moves before this load. RELEASE: no earlier access moves after this store.
 *
 * A writer fills an entry, then publishes its index with RELEASE. A reader loads the index with ACQUIRE, then reads the
 * entry.
 *
 * Before a side sleeps, and before it decides that the other side need not be woken, a FULL barrier stands between its
 * own store and its load of the other side's word (Dekker). Without that barrier both sides may sleep.
 *
 * The daemon uses Go's sync/atomic, which is sequentially consistent and so gives all of this.
 */
#ifndef KVPIPE_BARRIER_H
#define KVPIPE_BARRIER_H

#include <stdint.h>

#ifdef __cplusplus
#include <atomic>
template <typename T> static inline T kvpipe_load_acquire(const T *p)
{
	return std::atomic_load_explicit(reinterpret_cast<const std::atomic<T> *>(p), std::memory_order_acquire);
}
template <typename T> static inline void kvpipe_store_release(T *p, T v)
{
	std::atomic_store_explicit(reinterpret_cast<std::atomic<T> *>(p), v, std::memory_order_release);
}
static inline void kvpipe_full_barrier(void) { std::atomic_thread_fence(std::memory_order_seq_cst); }
#else
#define kvpipe_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define kvpipe_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define kvpipe_full_barrier() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif
#endif
