package main

import (
	"strings"
	"testing"
)

// TestScreen: names are shown, and command no terminal; programs get them as they are.
func TestScreen(t *testing.T) {
	const text = "rail\x1b[31m0\u009b2J\x7f\tété\r\n"
	for raw, want := range map[bool]string{false: "rail?[31m0?2J?\tété?\n", true: text} {
		var out strings.Builder
		if n, err := (screen{&out, &raw}).Write([]byte(text)); n != len(text) || err != nil || out.String() != want {
			t.Errorf("raw %v: %q, %d, %v, want %q", raw, out.String(), n, err, want)
		}
	}
}
