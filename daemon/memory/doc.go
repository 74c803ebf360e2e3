// Package memory owns the memory that sessions have registered. It judges descriptors from strangers, maps them, names
// the mappings (index and generation), resolves offsets to bytes, and unmaps regions. Its caller removes a region only
// when no transfer uses it any more.
//
// A Pool is the daemon's account of the bytes that regions keep. A Space is one session's regions. Both are safe for
// concurrent use.
//
// A region's bytes belong to another process, which may change them at any time and punch holes into them. Touch them
// only with internal/blockcopy or with system calls, which survive that.
package memory
