package main

import (
	"io"
	"strings"
	"unicode"
)

// screen is where people read. What would command their terminal is shown as a question mark: names of NICs can have any bytes, and those of
// others come from other nodes. Programs (--json) get everything.
type screen struct {
	w   io.Writer
	raw *bool
}

func (s screen) Write(b []byte) (int, error) {
	if *s.raw {
		return s.w.Write(b)
	}
	if _, err := io.WriteString(s.w, strings.Map(tame, string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

func tame(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return '?'
	}
	return r
}
