// Package cluster owns the daemons of tests that need several of them as processes: how they are started, told of each other,
// stopped, killed and listened to.
package cluster
