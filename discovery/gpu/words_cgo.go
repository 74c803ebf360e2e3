//go:build cgo

package gpu

import (
	"strings"
	"unicode"
)

// oneLine is what a library says of an error, as a part of a line: of a log, a table, a metric's label.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
}
