// Package memory owns the memory that sessions registered: it judges descriptors from strangers, maps them, names the
// mappings (index and generation), resolves offsets to bytes, and counts who still uses a mapping so that it goes away only
// when nobody does.
//
// A Pool is the daemon's account of registered bytes, a Space is one session's regions, a Hold keeps the regions of a few
// spaces mapped while a transfer works on them. All of them are safe for concurrent use.
//
// A region's bytes belong to another process, which may change them at any time and punch holes into them: touch them
// only with internal/blockcopy or with system calls, which survive that.
package memory
