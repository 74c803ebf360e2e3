package main

import (
	"fmt"
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

// kept remembers why what a command prints did not get to where it belongs: to a file on a disk that is full, say.
type kept struct {
	w   io.Writer
	err error // the first
}

func (k *kept) Write(b []byte) (int, error) {
	n, err := k.w.Write(b)
	if k.err == nil && err != nil {
		k.err = fmt.Errorf("output: %w", err)
	}
	return n, err
}

// complain says on w why a command failed. Whoever wrote the words may be on another node, and they are for people with --json, too.
func complain(w io.Writer, err error) {
	fmt.Fprintln(screen{w, new(bool)}, "kvpipectl:", err)
}

// tameCell is tame for what shares its line with others.
func tameCell(r rune) rune {
	if r == '\n' || r == '\t' {
		return ' '
	}
	return tame(r)
}

func tame(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return '?'
	}
	return r
}
