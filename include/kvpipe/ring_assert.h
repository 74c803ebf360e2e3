/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpipe/ring_assert.h - size and offset of everything in kvpipe/ring.h, checked by every compilation.
 *
 * A line here may be added, never changed: libraries and daemons of other versions rely on it.
 */
#ifndef KVPIPE_RING_ASSERT_H
#define KVPIPE_RING_ASSERT_H

#ifdef __cplusplus
#define KVPIPE_ASSERT(c) static_assert(c, #c)
#else
#define KVPIPE_ASSERT(c) _Static_assert(c, #c)
#endif
#define KVPIPE_SIZE(t, n) KVPIPE_ASSERT(sizeof(struct t) == (n))
#define KVPIPE_OFF(t, f, n) KVPIPE_ASSERT(offsetof(struct t, f) == (n))

KVPIPE_SIZE(kvpipe_ctl, 32);
KVPIPE_OFF(kvpipe_ctl, magic, 0);
KVPIPE_OFF(kvpipe_ctl, type, 4);
KVPIPE_OFF(kvpipe_ctl, flags, 6);
KVPIPE_OFF(kvpipe_ctl, len, 8);
KVPIPE_OFF(kvpipe_ctl, seq, 12);
KVPIPE_OFF(kvpipe_ctl, reserved, 16);

KVPIPE_SIZE(kvpipe_hello, 768);
KVPIPE_OFF(kvpipe_hello, abi_min, 0);
KVPIPE_OFF(kvpipe_hello, abi_max, 4);
KVPIPE_OFF(kvpipe_hello, features, 8);
KVPIPE_OFF(kvpipe_hello, role, 16);
KVPIPE_OFF(kvpipe_hello, tp_rank, 20);
KVPIPE_OFF(kvpipe_hello, pp_rank, 24);
KVPIPE_OFF(kvpipe_hello, tp_world, 28);
KVPIPE_OFF(kvpipe_hello, pp_world, 32);
KVPIPE_OFF(kvpipe_hello, sq_entries, 36);
KVPIPE_OFF(kvpipe_hello, cq_entries, 40);
KVPIPE_OFF(kvpipe_hello, pid, 44);
KVPIPE_OFF(kvpipe_hello, arena_bytes, 48);
KVPIPE_OFF(kvpipe_hello, layer_slots, 52);
KVPIPE_OFF(kvpipe_hello, session, 56);
KVPIPE_OFF(kvpipe_hello, secret, 64);
KVPIPE_OFF(kvpipe_hello, engine, 96);
KVPIPE_OFF(kvpipe_hello, instance, 224);
KVPIPE_OFF(kvpipe_hello, library, 352);
KVPIPE_OFF(kvpipe_hello, reserved, 416);

KVPIPE_SIZE(kvpipe_ring_desc, 24);
KVPIPE_OFF(kvpipe_ring_desc, kind, 0);
KVPIPE_OFF(kvpipe_ring_desc, memfd, 4);
KVPIPE_OFF(kvpipe_ring_desc, offset, 8);
KVPIPE_OFF(kvpipe_ring_desc, entries, 16);
KVPIPE_OFF(kvpipe_ring_desc, entry_size, 20);

KVPIPE_SIZE(kvpipe_welcome, 1280);
KVPIPE_OFF(kvpipe_welcome, abi, 0);
KVPIPE_OFF(kvpipe_welcome, epoch, 4);
KVPIPE_OFF(kvpipe_welcome, features, 8);
KVPIPE_OFF(kvpipe_welcome, session, 16);
KVPIPE_OFF(kvpipe_welcome, secret, 24);
KVPIPE_OFF(kvpipe_welcome, ring_c_bytes, 56);
KVPIPE_OFF(kvpipe_welcome, ring_d_bytes, 64);
KVPIPE_OFF(kvpipe_welcome, nrings, 72);
KVPIPE_OFF(kvpipe_welcome, rank, 76);
KVPIPE_OFF(kvpipe_welcome, rings, 80);
KVPIPE_OFF(kvpipe_welcome, max_pinned_bytes, 464);
KVPIPE_OFF(kvpipe_welcome, ops, 472);
KVPIPE_OFF(kvpipe_welcome, max_ids, 480);
KVPIPE_OFF(kvpipe_welcome, max_views, 484);
KVPIPE_OFF(kvpipe_welcome, max_regions, 488);
KVPIPE_OFF(kvpipe_welcome, max_inflight, 492);
KVPIPE_OFF(kvpipe_welcome, node, 496);
KVPIPE_OFF(kvpipe_welcome, instance, 752);
KVPIPE_OFF(kvpipe_welcome, advertise, 880);
KVPIPE_OFF(kvpipe_welcome, daemon, 1008);
KVPIPE_OFF(kvpipe_welcome, says, 1072);
KVPIPE_OFF(kvpipe_welcome, reserved, 1080);

KVPIPE_SIZE(kvpipe_ack, 32);
KVPIPE_OFF(kvpipe_ack, reason, 0);
KVPIPE_OFF(kvpipe_ack, text_len, 4);
KVPIPE_OFF(kvpipe_ack, value, 8);
KVPIPE_OFF(kvpipe_ack, reserved, 16);

KVPIPE_SIZE(kvpipe_register, 32);
KVPIPE_OFF(kvpipe_register, bytes, 0);
KVPIPE_OFF(kvpipe_register, kind, 8);
KVPIPE_OFF(kvpipe_register, flags, 12);
KVPIPE_OFF(kvpipe_register, reserved, 16);

KVPIPE_SIZE(kvpipe_unregister, 32);
KVPIPE_OFF(kvpipe_unregister, region, 0);
KVPIPE_OFF(kvpipe_unregister, timeout_ns, 8);
KVPIPE_OFF(kvpipe_unregister, reserved, 16);
KVPIPE_SIZE(kvpipe_revalidate, 32);
KVPIPE_OFF(kvpipe_revalidate, region, 0);
KVPIPE_OFF(kvpipe_revalidate, reserved, 8);

KVPIPE_SIZE(kvpipe_layout_msg, 32);
KVPIPE_OFF(kvpipe_layout_msg, flags, 0);
KVPIPE_OFF(kvpipe_layout_msg, nviews, 4);
KVPIPE_OFF(kvpipe_layout_msg, nfields, 8);
KVPIPE_OFF(kvpipe_layout_msg, total_views, 12);
KVPIPE_OFF(kvpipe_layout_msg, reserved, 16);

KVPIPE_SIZE(kvpipe_sqe, 64);
KVPIPE_OFF(kvpipe_sqe, op, 0);
KVPIPE_OFF(kvpipe_sqe, flags, 1);
KVPIPE_OFF(kvpipe_sqe, reserved0, 2);
KVPIPE_OFF(kvpipe_sqe, rec_len, 4);
KVPIPE_OFF(kvpipe_sqe, user_data, 8);
KVPIPE_OFF(kvpipe_sqe, timeout_ns, 16);
KVPIPE_OFF(kvpipe_sqe, rec_off, 24);
KVPIPE_OFF(kvpipe_sqe, target, 32);
KVPIPE_OFF(kvpipe_sqe, tag, 40);
KVPIPE_OFF(kvpipe_sqe, layer_slot, 48);
KVPIPE_OFF(kvpipe_sqe, reserved1, 52);
KVPIPE_OFF(kvpipe_sqe, reserved2, 56);

KVPIPE_SIZE(kvpipe_rec_group, 24);
KVPIPE_OFF(kvpipe_rec_group, group, 0);
KVPIPE_OFF(kvpipe_rec_group, first_token, 4);
KVPIPE_OFF(kvpipe_rec_group, ntokens, 8);
KVPIPE_OFF(kvpipe_rec_group, form, 12);
KVPIPE_OFF(kvpipe_rec_group, count, 16);
KVPIPE_OFF(kvpipe_rec_group, reserved, 20);

KVPIPE_SIZE(kvpipe_rec_offer, 64);
KVPIPE_OFF(kvpipe_rec_offer, flags, 0);
KVPIPE_OFF(kvpipe_rec_offer, consumers, 4);
KVPIPE_OFF(kvpipe_rec_offer, after, 8);
KVPIPE_OFF(kvpipe_rec_offer, key_len, 16);
KVPIPE_OFF(kvpipe_rec_offer, token_len, 18);
KVPIPE_OFF(kvpipe_rec_offer, content_len, 20);
KVPIPE_OFF(kvpipe_rec_offer, trace_len, 22);
KVPIPE_OFF(kvpipe_rec_offer, ngroups, 24);
KVPIPE_OFF(kvpipe_rec_offer, reserved0, 28);
KVPIPE_OFF(kvpipe_rec_offer, reserved, 32);

KVPIPE_SIZE(kvpipe_rec_extend, 32);
KVPIPE_OFF(kvpipe_rec_extend, flags, 0);
KVPIPE_OFF(kvpipe_rec_extend, ngroups, 4);
KVPIPE_OFF(kvpipe_rec_extend, after, 8);
KVPIPE_OFF(kvpipe_rec_extend, reserved, 16);

KVPIPE_SIZE(kvpipe_rec_take, 80);
KVPIPE_OFF(kvpipe_rec_take, flags, 0);
KVPIPE_OFF(kvpipe_rec_take, part, 4);
KVPIPE_OFF(kvpipe_rec_take, parts, 8);
KVPIPE_OFF(kvpipe_rec_take, reserved0, 12);
KVPIPE_OFF(kvpipe_rec_take, take_id, 16);
KVPIPE_OFF(kvpipe_rec_take, after, 24);
KVPIPE_OFF(kvpipe_rec_take, key_len, 32);
KVPIPE_OFF(kvpipe_rec_take, token_len, 34);
KVPIPE_OFF(kvpipe_rec_take, content_len, 36);
KVPIPE_OFF(kvpipe_rec_take, trace_len, 38);
KVPIPE_OFF(kvpipe_rec_take, peer_len, 40);
KVPIPE_OFF(kvpipe_rec_take, reserved1, 42);
KVPIPE_OFF(kvpipe_rec_take, ngroups, 48);
KVPIPE_OFF(kvpipe_rec_take, reserved2, 52);
KVPIPE_OFF(kvpipe_rec_take, reserved, 56);

KVPIPE_SIZE(kvpipe_rec_key, 32);
KVPIPE_OFF(kvpipe_rec_key, key_len, 0);
KVPIPE_OFF(kvpipe_rec_key, token_len, 2);
KVPIPE_OFF(kvpipe_rec_key, trace_len, 4);
KVPIPE_OFF(kvpipe_rec_key, peer_len, 6);
KVPIPE_OFF(kvpipe_rec_key, reserved, 8);

KVPIPE_SIZE(kvpipe_rec_bind, 48);
KVPIPE_OFF(kvpipe_rec_bind, kind, 0);
KVPIPE_OFF(kvpipe_rec_bind, flags, 4);
KVPIPE_OFF(kvpipe_rec_bind, capacity, 8);
KVPIPE_OFF(kvpipe_rec_bind, linger_ns, 16);
KVPIPE_OFF(kvpipe_rec_bind, name_len, 24);
KVPIPE_OFF(kvpipe_rec_bind, token_len, 26);
KVPIPE_OFF(kvpipe_rec_bind, peer_len, 28);
KVPIPE_OFF(kvpipe_rec_bind, reserved0, 30);
KVPIPE_OFF(kvpipe_rec_bind, reserved, 32);

KVPIPE_SIZE(kvpipe_rec_put, 48);
KVPIPE_OFF(kvpipe_rec_put, form, 0);
KVPIPE_OFF(kvpipe_rec_put, flags, 4);
KVPIPE_OFF(kvpipe_rec_put, bytes, 8);
KVPIPE_OFF(kvpipe_rec_put, meta_len, 16);
KVPIPE_OFF(kvpipe_rec_put, key_len, 20);
KVPIPE_OFF(kvpipe_rec_put, ntokens, 24);
KVPIPE_OFF(kvpipe_rec_put, ngroups, 28);
KVPIPE_OFF(kvpipe_rec_put, reserved, 32);

KVPIPE_SIZE(kvpipe_rec_get, 64);
KVPIPE_OFF(kvpipe_rec_get, match, 0);
KVPIPE_OFF(kvpipe_rec_get, flags, 4);
KVPIPE_OFF(kvpipe_rec_get, room, 8);
KVPIPE_OFF(kvpipe_rec_get, seq, 16);
KVPIPE_OFF(kvpipe_rec_get, key_len, 24);
KVPIPE_OFF(kvpipe_rec_get, ntokens, 28);
KVPIPE_OFF(kvpipe_rec_get, ngroups, 32);
KVPIPE_OFF(kvpipe_rec_get, reserved0, 36);
KVPIPE_OFF(kvpipe_rec_get, reserved, 40);

KVPIPE_SIZE(kvpipe_cqe, 64);
KVPIPE_OFF(kvpipe_cqe, user_data, 0);
KVPIPE_OFF(kvpipe_cqe, tag, 8);
KVPIPE_OFF(kvpipe_cqe, op_id, 16);
KVPIPE_OFF(kvpipe_cqe, bytes, 24);
KVPIPE_OFF(kvpipe_cqe, status, 32);
KVPIPE_OFF(kvpipe_cqe, reason, 34);
KVPIPE_OFF(kvpipe_cqe, flags, 36);
KVPIPE_OFF(kvpipe_cqe, rank, 40);
KVPIPE_OFF(kvpipe_cqe, epoch, 44);
KVPIPE_OFF(kvpipe_cqe, result_off, 48);
KVPIPE_OFF(kvpipe_cqe, result_len, 56);
KVPIPE_OFF(kvpipe_cqe, reserved, 60);

KVPIPE_SIZE(kvpipe_result, 16);
KVPIPE_OFF(kvpipe_result, nfailed, 0);
KVPIPE_OFF(kvpipe_result, text_len, 4);
KVPIPE_OFF(kvpipe_result, reserved, 8);

KVPIPE_SIZE(kvpipe_got, 48);
KVPIPE_OFF(kvpipe_got, item, 0);
KVPIPE_OFF(kvpipe_got, bytes, 8);
KVPIPE_OFF(kvpipe_got, capacity, 16);
KVPIPE_OFF(kvpipe_got, matched, 24);
KVPIPE_OFF(kvpipe_got, meta_len, 32);
KVPIPE_OFF(kvpipe_got, reserved0, 36);
KVPIPE_OFF(kvpipe_got, reserved, 40);

KVPIPE_SIZE(kvpipe_layer_slot, 64);
KVPIPE_OFF(kvpipe_layer_slot, user_data, 0);
KVPIPE_OFF(kvpipe_layer_slot, ready, 8);
KVPIPE_OFF(kvpipe_layer_slot, granted, 12);
KVPIPE_OFF(kvpipe_layer_slot, reserved, 16);

KVPIPE_SIZE(kvpipe_ring_c, 384);
KVPIPE_OFF(kvpipe_ring_c, sq_tail, 0);
KVPIPE_OFF(kvpipe_ring_c, pad0, 4);
KVPIPE_OFF(kvpipe_ring_c, cq_head, 64);
KVPIPE_OFF(kvpipe_ring_c, pad1, 68);
KVPIPE_OFF(kvpipe_ring_c, cq_waiting, 128);
KVPIPE_OFF(kvpipe_ring_c, pad2, 132);
KVPIPE_OFF(kvpipe_ring_c, progress, 192);
KVPIPE_OFF(kvpipe_ring_c, pad3, 200);
KVPIPE_OFF(kvpipe_ring_c, work_done_tail, 256);
KVPIPE_OFF(kvpipe_ring_c, pad4, 260);
KVPIPE_OFF(kvpipe_ring_c, work_head, 320);
KVPIPE_OFF(kvpipe_ring_c, pad5, 324);

KVPIPE_SIZE(kvpipe_ring_d, 512);
KVPIPE_OFF(kvpipe_ring_d, sq_head, 0);
KVPIPE_OFF(kvpipe_ring_d, pad0, 4);
KVPIPE_OFF(kvpipe_ring_d, cq_tail, 64);
KVPIPE_OFF(kvpipe_ring_d, pad1, 68);
KVPIPE_OFF(kvpipe_ring_d, need_wakeup, 128);
KVPIPE_OFF(kvpipe_ring_d, pad2, 132);
KVPIPE_OFF(kvpipe_ring_d, progress_wait, 192);
KVPIPE_OFF(kvpipe_ring_d, pad3, 200);
KVPIPE_OFF(kvpipe_ring_d, closed, 256);
KVPIPE_OFF(kvpipe_ring_d, pad4, 260);
KVPIPE_OFF(kvpipe_ring_d, heartbeat, 320);
KVPIPE_OFF(kvpipe_ring_d, pad5, 328);
KVPIPE_OFF(kvpipe_ring_d, work_tail, 384);
KVPIPE_OFF(kvpipe_ring_d, pad6, 388);
KVPIPE_OFF(kvpipe_ring_d, work_done_head, 448);
KVPIPE_OFF(kvpipe_ring_d, pad7, 452);
#endif
