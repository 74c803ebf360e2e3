// Package policy holds the rules of the house that a compiler does not check:
// who may import whom, where cgo and unsafe may be, that the pure packages stay
// pure, that no daemon leaves out a guard, that each package says what it owns.
// The rules are tests over the source tree; each one carries examples that it
// must catch and must let pass.
package policy
