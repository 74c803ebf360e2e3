//go:build !race

package blockcopy

const raceEnabled = false
