// Package daemon puts the parts of kvpiped together. It constructs them from a configuration, runs them, reloads what
// can be reloaded, and takes them down in an order in which nothing is touched after it was given back. Nothing else
// constructs, and nothing here decides about transfers. What belongs to the whole daemon and to no single part is here,
// too:
//
//   - where it listens, also at ports and addresses that come late, and what it takes over from the service manager;
//   - what it tells: the answers of the admin socket, metrics, health, the log's handlers, systemd and its watchdog;
//   - the machine below it: CPUs and the Go runtime, which NICs data links may use, how devices hang together;
//   - measurements for kvpipectl bench (bench*.go), by the daemon's own sessions, which the router tells from clients'.
package daemon
