// Package session owns the connections of local clients: who they are, what they registered, their rings, and whether they
// still live. It turns their submissions into the transfer machine's events and its effects into completions.
//
// A Server accepts connections on a SEQPACKET unix socket. Each connection waits in the lobby until it has said HELLO, and is then one session, with
//   - a goroutine that handles control messages, and the end of the session;
//   - a goroutine that sleeps until the client rings, and then reads the submission ring;
//   - a goroutine that waits for the end of the client's process.
//
// With PollMode "busy" one goroutine reads the rings of all sessions instead for as long as there is something to read, and a
// little longer.
//
// Nothing of a client's is trusted. A submission is copied once and judged by Decode, which does no I/O; what is wrong with
// a single submission fails that submission, what breaks the protocol ends the session with a reason. Only completions
// already promised are written, so none is lost: see Credits in pump.go.
//
// A session ends in three steps: it takes nothing in any more and SessionClosed is reported; the driver fences and calls
// SessionDrained; its memory is unmapped and its connection closed.
package session
