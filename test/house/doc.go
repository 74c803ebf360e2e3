// Package house tests the gates that the build stands on: a check that lets
// everything pass looks exactly like one that finds nothing.
package house
