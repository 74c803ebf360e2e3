package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// screen is output that people read. Characters that could command their terminal become question marks: a NIC's name
// can have any bytes, and names of other things come from other nodes. Programs (--json) get everything.
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

// kept remembers why a command's output could not be written, such as a full disk.
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

// complain writes to w why a command failed. The text may come from another node. It is for people, even with --json.
func complain(w io.Writer, err error) {
	fmt.Fprintln(screen{w, new(bool)}, "kvpipectl:", err)
}

// tameCell is tame for text that shares its line with other cells.
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
