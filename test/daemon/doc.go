// Package daemon runs kvpiped and kvpipectl as processes: how they start and why not, what they leave behind, signals,
// certificates, health. The programs are those in $KVPIPE_BIN, else they are built first.
package daemon
