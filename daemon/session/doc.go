// Package session owns the connections of local clients: who they are, what they registered, their rings, and whether
// they still live. It turns their submissions into events of the transfer machine, and the machine's effects into
// completions.
//
// A Server accepts connections on a SEQPACKET unix socket. Each connection waits in the lobby until it has said HELLO.
// Then it is one session, with
//   - a goroutine that handles control messages, and the end of the session;
//   - a goroutine that sleeps until the client rings, and then reads the submission ring;
//   - a goroutine that waits for the end of the client's process.
//
// With PollMode "busy", one goroutine reads the rings of all sessions instead, while there is something to read and a
// little longer.
//
// Nothing that comes from a client is trusted. A submission is copied once and judged by Decode, which does no I/O.
// What is wrong with a single submission fails that submission; what breaks the protocol ends the session with a
// reason. Only completions that are already promised are written, so none is lost: see Credits in pump.go.
//
// A session ends in three steps. It takes in nothing more, and SessionClosed is reported. The driver fences and calls
// SessionDrained. Its memory is unmapped and its connection closed.
package session
