// Package sessiontest owns a client of the session protocol in Go, for tests of the daemon. It does what libkvpipe does
// and, on request, what no honest client would. A Client belongs to one goroutine at a time.
package sessiontest
