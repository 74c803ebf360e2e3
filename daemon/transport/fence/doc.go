// Package fence keeps account of who may touch the memory of a leg. Transports move bytes through it, so that "no byte is
// read or lands any more" and "each slice is reported once, and before Fenced" are decided in one place.
//
// A Leg has slices that have not ended. Around each piece of work on memory (one copy of at most 256 KiB, one
// non-blocking system call) a worker says Enter and Leave; in between it may wait for a peer as long as it likes.
// Fence ends all slices that nobody is inside of at once, on behalf of workers that wait, and the others as soon as they
// leave. So it takes as long as a copy, and never waits for a peer.
package fence
