// Package transporttest is the suite that every transport passes: the right bytes in the right places, each slice
// reported once, and nothing after a fence. A transport's own test says how to make a pair of nodes (Open) and calls
// Run.
package transporttest
