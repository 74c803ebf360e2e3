package layout

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// checkFields returns a copy of the fields in ascending order of their keys.
func checkFields(fp []Field) ([]Field, error) {
	if len(fp) > MaxFingerprint {
		return nil, fmt.Errorf("fingerprint: %d fields; must be at most %d", len(fp), MaxFingerprint)
	}
	fields := slices.Clone(fp)
	slices.SortStableFunc(fields, func(a, b Field) int { return strings.Compare(a.Key, b.Key) })
	for i, f := range fields {
		if err := checkText(f.Key, MaxFieldKey); err != nil {
			return nil, fmt.Errorf("fingerprint: key %.40q: %w", f.Key, err)
		}
		if err := checkText(f.Value, MaxFieldValue); err != nil {
			return nil, fmt.Errorf("fingerprint: value %.40q of key %q: %w", f.Value, f.Key, err)
		}
		if i > 0 && fields[i-1].Key == f.Key {
			return nil, fmt.Errorf("fingerprint: key %q is given twice, with values %q and %q", f.Key, fields[i-1].Value, f.Value)
		}
	}
	return fields, nil
}

func checkText(s string, most int) error {
	switch {
	case s == "" || len(s) > most:
		return fmt.Errorf("%d bytes; must be 1 to %d", len(s), most)
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return fmt.Errorf("not UTF-8 without NUL")
	}
	return nil
}

// SameFingerprint says whether FingerprintDiff finds no difference, at the cost of comparing two digests.
func SameFingerprint(a, b *Layout) bool { return a.fields == b.fields }

// FingerprintDiff returns the first field, in order of keys, in which two layouts differ; a side that lacks the field
// has the value "". Layouts whose fingerprints differ must not exchange a single byte.
func FingerprintDiff(a, b *Layout) (key, va, vb string, differ bool) {
	x, y := a.fingerprint, b.fingerprint
	for len(x) > 0 || len(y) > 0 {
		switch {
		case len(y) == 0 || len(x) > 0 && x[0].Key < y[0].Key:
			return x[0].Key, x[0].Value, "", true
		case len(x) == 0 || y[0].Key < x[0].Key:
			return y[0].Key, "", y[0].Value, true
		case x[0].Value != y[0].Value:
			return x[0].Key, x[0].Value, y[0].Value, true
		}
		x, y = x[1:], y[1:]
	}
	return "", "", "", false
}
