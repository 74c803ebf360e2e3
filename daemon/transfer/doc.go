// Package transfer is the transfer machine: offers, takes, leases, holds, fences and their promises.
//
// It is I/O-free. Events go in (a client's operation, a peer's message, a slice's end, progress, a clock tick, the death
// of a session or a peer), effects come out (send this message, plan, post these slices, fence, complete, arm a
// timer). There is no goroutine, no lock and no clock inside: Machine.Step(now, event) is a function of its past.
// The machine sees slices, never runs or bytes (inline payloads are opaque to it).
//
// One machine per daemon plays both ends: the producer's end of transfers whose offer is here, the consumer's end
// of transfers whose take is here. A take from the own node goes through the same messages, handed over inside Step.
//
// What an offer, a take or a serve does in its life is its own method, and is given the machine: v.refuse(m). What looks for them, or puts them
// into the machine's lists and lanes and takes them out, is the machine's: m.park(v). So is what becomes of gets at their home, of legs, routes
// and peers: m.found(k, item).
package transfer
