// Package chaos owns the tests by force: engines and daemons as processes that are killed and stopped at random instructions, on
// one node and on two, with GPUs (test/fakenvml) and NUMA nodes, while every word that arrives is looked at: of hand-overs, and of the
// items of a pipe and the entries of a lookup buffer beside them.
package chaos
