// Package sys owns every Linux system call that the standard library does not
// offer: sealed memfds and their mappings, eventfds, pidfds and peer
// credentials, descriptor passing over SEQPACKET sockets, scattered socket
// input and output without allocation, thread scheduling, and the places of
// pages. It is the only package that imports golang.org/x/sys/unix.
//
// Descriptors are plain ints. A function that returns one gives it to the
// caller, who ends it with Close; a function that takes one only borrows it,
// unless its comment says otherwise. Every descriptor made or received here is
// close-on-exec. Errors wrap the errno, so errors.Is works with syscall.Errno
// and with the values of package os. Functions are safe for concurrent use;
// those that act on the calling thread say so and need runtime.LockOSThread.
package sys
