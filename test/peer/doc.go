// Package peer owns the tests of several daemons as processes: how they find, trust and lose each other. Their clients are
// sessions of this process.
package peer
