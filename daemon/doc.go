// Package daemon puts the parts of kvpiped together: it constructs them from a configuration, runs them, reloads what
// can be reloaded and takes them down in an order in which nothing is touched after it was given back. Nothing else
// constructs; nothing here decides.
package daemon
