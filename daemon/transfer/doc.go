// Package transfer is the transfer machine: offers, takes, leases, holds, fences and their promises.
//
// It does no I/O. Events go in: a client's operation, a peer's message, the end of a slice, progress, a clock tick, the
// death of a session or a peer. Effects come out: send this message, plan, post these slices, fence, complete, arm a
// timer. There is no goroutine, no lock and no clock inside: what Machine.Step(now, event) does depends only on its
// arguments and on the steps before it. The machine sees slices, never runs or bytes; inline payloads are opaque to it.
//
// One machine per daemon plays both ends: the producer's end of transfers whose offer is here, and the consumer's end
// of transfers whose take is here. A take from this same node goes through the same messages, handed over inside Step.
//
// What an offer, a take or a serve (the producer's end of a transfer) does in its life is its own method, with the machine
// as an argument: v.refuse(m). What finds them, or moves them in and out of the machine's lists and lanes, is a method of
// the machine: m.park(v). So is what becomes of gets at their home, of legs, routes and peers: m.found(k, item).
package transfer
