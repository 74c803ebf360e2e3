//go:build race

package sys

// raceEnabled: the race detector allocates on its own account.
const raceEnabled = true
