// Package fence keeps track of who may touch the memory of a leg. Transports move bytes through it, so that two
// promises are kept in one place: no byte is read or lands after a fence, and each slice is reported once, before
// Fenced.
//
// A Leg holds slices that have not ended. A worker calls Enter and Leave around each piece of work on memory: one copy
// of at most 256 KiB, or one non-blocking system call. Between two pieces it may wait for a peer for as long as it
// likes. Fence ends at once all slices that no worker is inside of, and each of the others when its worker leaves. So a
// fence takes as long as one copy, and never waits for a peer.
package fence
