// Package match owns the two matching policies: who gets which item. Pipe hands out items by their number; Lookup finds the oldest
// entry for a query, by its tokens or its key, and the oldest waiting query for an entry. Both are pure: no I/O, no clock, no lock.
//
// An entry that is being handed over is taken: nobody else finds it. It is removed when that went well, and returned to its place
// among the others, as old as it was, when it did not.
package match
