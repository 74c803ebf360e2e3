// Package memory owns the memory that sessions registered: it judges descriptors from strangers, maps them, names the
// mappings (index and generation), resolves offsets to bytes, and unmaps what is taken away, which its caller does when
// no transfer works on it any more.
//
// A Pool is the daemon's account of the bytes that regions keep, a Space is one session's regions. Both are safe for concurrent use.
//
// A region's bytes belong to another process, which may change them at any time and punch holes into them: touch them
// only with internal/blockcopy or with system calls, which survive that.
package memory
