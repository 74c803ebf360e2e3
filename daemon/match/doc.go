// Package match owns the two matching policies: who gets which item. Pipe hands out items by their number. Lookup
// finds the oldest entry for a query by its tokens, and the oldest waiting query for an entry; entries under a key
// are the caller's. Both are pure: no I/O, no clock, no lock.
//
// An entry that is being handed over is taken: nobody else finds it. If the hand-over succeeds, the entry is removed.
// If not, it is returned to its place among the others, as old as before.
package match
