//go:build race

package blockcopy

const raceEnabled = true
