package house

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	structLead = regexp.MustCompile("`struct (kvpipe_[a-z_]+)`, ([0-9]+) bytes")
	goldenLine = regexp.MustCompile(`(SIZE|FIELD|VALUE)\(([^)]*)\)`)
	padding    = regexp.MustCompile(`^pad[0-9]$`)
)

// abi is what the golden file of the C ABI says.
type abi struct {
	sizes  map[string]int
	fields map[string][]string // of a struct: "offset size name"
	values map[string]string
}

func readABI(t *testing.T) abi {
	t.Helper()
	a := abi{map[string]int{}, map[string][]string{}, map[string]string{}}
	for _, line := range goldenLine.FindAllStringSubmatch(read(t, "../../capi/internal/abicheck/testdata/abi.golden"), -1) {
		args := strings.Split(line[2], ", ")
		switch {
		case line[1] == "SIZE":
			a.sizes[args[0]], _ = strconv.Atoi(args[1])
		case line[1] == "VALUE":
			a.values[args[0]] = args[1]
		case !padding.MatchString(args[1]):
			a.fields[args[0]] = append(a.fields[args[0]], args[2]+" "+args[3]+" "+args[1])
		}
	}
	return a
}

// TestProtocolStructs: every struct of ring.h has a table, whose offsets and sizes are those that C compilers see and ring_assert.h says.
func TestProtocolStructs(t *testing.T) {
	a, asserts, seen := readABI(t), read(t, "../../include/kvpipe/ring_assert.h"), map[string]bool{}
	for _, tab := range tables(t) {
		lead := structLead.FindStringSubmatch(tab.lead)
		if lead == nil || !tab.headed("offset", "size", "field", "meaning") {
			continue
		}
		name := lead[1]
		if seen[name] = true; lead[2] != strconv.Itoa(a.sizes[name]) {
			t.Errorf("struct %s: the page says %s bytes, it has %d", name, lead[2], a.sizes[name])
		}
		fields := expand(t, name, tab)
		if !slices.Equal(fields, a.fields[name]) {
			t.Errorf("struct %s: the page has\n%q, C has\n%q", name, fields, a.fields[name])
		}
		if name == "kvpipe_view" || name == "kvpipe_run" {
			continue // of kvpipe.h
		}
		for _, field := range fields {
			var offset, size int
			var member string
			if _, err := fmt.Sscan(field, &offset, &size, &member); err != nil {
				t.Fatal(err)
			}
			if line := fmt.Sprintf("KVPIPE_OFF(%s, %s, %d);", name, member, offset); !strings.Contains(asserts, line) {
				t.Errorf("ring_assert.h has no line %s", line)
			}
		}
	}
	for _, name := range regexp.MustCompile(`(?m)^struct (kvpipe_[a-z_]+) \{`).FindAllStringSubmatch(read(t, "../../include/kvpipe/ring.h"), -1) {
		if !seen[name[1]] {
			t.Errorf("struct %s of ring.h has no table", name[1])
		}
	}
}

// expand gives each field of a table its own line. A row may stand for several of one size, which follow each other.
func expand(t *testing.T, name string, tab table) (fields []string) {
	t.Helper()
	for _, row := range tab.rows[1:] {
		offset, err := strconv.Atoi(row[0])
		size, err2 := strconv.Atoi(strings.TrimSuffix(row[1], " each"))
		if err != nil || err2 != nil {
			t.Errorf("struct %s: row %q", name, row)
		}
		members := strings.Split(row[2], ", ")
		if several := strings.HasSuffix(row[1], " each"); several != (len(members) > 1) {
			t.Errorf("struct %s: %q has %d fields of %q bytes", name, row[2], len(members), row[1])
		}
		for i, member := range members {
			fields = append(fields, fmt.Sprintf("%d %d %s", offset+i*size, size, member))
		}
	}
	return fields
}

// TestProtocolOffsets: the bytes of what has no struct in C follow each other without a gap, too.
func TestProtocolOffsets(t *testing.T) {
	checked := 0
	for _, tab := range tables(t) {
		if !tab.headed("offset", "size", "field", "meaning") || structLead.MatchString(tab.lead) {
			continue
		}
		end := 0
		for _, field := range expand(t, tab.lead, tab) {
			var offset, size int
			if _, err := fmt.Sscan(field, &offset, &size); err != nil || offset != end {
				t.Errorf("%s %q begins at %d, the field before ends at %d (%v)", tab.lead, field, offset, end, err)
			}
			end = offset + size
		}
		if checked++; !strings.Contains(tab.lead, fmt.Sprintf(" %d bytes", end)) {
			t.Errorf("%s the table has %d bytes", tab.lead, end)
		}
	}
	if checked == 0 {
		t.Error("the page has no such table")
	}
}

// TestProtocolValues: the page's numbers are those of the headers, and none of ring.h's is missing.
func TestProtocolValues(t *testing.T) {
	a, seen := readABI(t), map[string]bool{}
	for _, tab := range tables(t) {
		if !tab.headed("value", "name", "meaning") {
			continue
		}
		for _, row := range tab.rows[1:] {
			n, err := strconv.ParseUint(row[0], 0, 64)
			if seen[row[1]] = true; err != nil || a.values[row[1]] != strconv.FormatUint(n, 10) {
				t.Errorf("%s: the page says %s (%v), the headers %q", row[1], row[0], err, a.values[row[1]])
			}
		}
	}
	header := read(t, "../../include/kvpipe.h")
	for _, enum := range []string{"reason", "role", "view_kind", "op_flags", "status", "completion_flags", "dtype"} {
		_, body, _ := strings.Cut(header, "enum kvpipe_"+enum+" {")
		body, _, found := strings.Cut(body, "};")
		if !found {
			t.Fatalf("kvpipe.h has no enum kvpipe_%s", enum)
		}
		missing(t, seen, body)
	}
	missing(t, seen, read(t, "../../include/kvpipe/ring.h"))
}

// missing complains of names that get a number in text and have no row.
func missing(t *testing.T, seen map[string]bool, text string) {
	t.Helper()
	for _, name := range regexp.MustCompile(`(?m)^\s*(?:#define )?(KVPIPE_[A-Z0-9_]+)\s+(?:= |\(?[0-9])`).FindAllStringSubmatch(text, -1) {
		if !seen[name[1]] {
			t.Errorf("%s has no row in a table of values", name[1])
		}
	}
}
