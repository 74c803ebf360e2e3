// Package house tests the gates that the build stands on: a check that lets
// everything pass looks exactly like one that finds nothing. It also holds the
// examples of the documentation against the code.
package house
