//go:build cgo

package gpu

import (
	"strings"
	"unicode"
)

// oneLine makes a library's error text fit into one line of a log, into a table or a metric's label.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
}
