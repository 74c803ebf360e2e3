package house

import (
	"regexp"
	"strings"
	"testing"
)

// metaGolden is the golden meta of the library's own test, which writes it and reads it.
func metaGolden(t *testing.T) []byte {
	t.Helper()
	_, rest, found := strings.Cut(read(t, "../../capi/tests/test_meta.c"), "static const uint8_t golden[] = {")
	literal, _, ends := strings.Cut(rest, "};")
	if !found || !ends {
		t.Fatal("capi/tests/test_meta.c has no golden meta")
	}
	digits := ""
	for _, b := range regexp.MustCompile(`0x([0-9a-f]{2})\b`).FindAllStringSubmatch(literal, -1) {
		digits += b[1]
	}
	return unhex(t, digits)
}

// TestProtocolDtypes: names and sizes of element types are the library's; that none is missing, and the numbers, TestProtocolValues compares.
func TestProtocolDtypes(t *testing.T) {
	want, seen := map[string]string{}, 0
	for _, d := range regexp.MustCompile(`\[(KVPIPE_\w+)\] = \{ "(\w+)", (\d+) \}`).FindAllStringSubmatch(read(t, "../../capi/dtype.c"), -1) {
		want[d[1]] = d[2] + " " + d[3]
	}
	for _, tab := range tables(t) {
		if !tab.headed("value", "name", "meaning", "bytes") {
			continue
		}
		for _, row := range tab.rows[1:] {
			if seen++; want[row[1]] != row[2]+" "+row[3] {
				t.Errorf("%s: the page says %s, %s bytes; capi/dtype.c %q", row[1], row[2], row[3], want[row[1]])
			}
		}
	}
	if seen == 0 || seen != len(want) {
		t.Errorf("the page has %d element types, capi/dtype.c %d", seen, len(want))
	}
}

// TestProtocolArena: the view and the fingerprint of an end's arena are those that the library sets; a field that it does not name is 0.
func TestProtocolArena(t *testing.T) {
	source := read(t, "../../capi/arena.c")
	_, rest, found := strings.Cut(source, "struct kvpipe_view v = {")
	view, _, ends := strings.Cut(rest, "};")
	if !found || !ends {
		t.Fatal("capi/arena.c has no view")
	}
	want, seen := map[string]string{}, map[string]bool{"region": true}
	for _, f := range regexp.MustCompile(`\.(\w+) = ([^,\s]+)`).FindAllStringSubmatch(view, -1) {
		want[f[1]] = f[2]
	}
	for _, tab := range tables(t) {
		if !tab.headed("view", "value") {
			continue
		}
		for _, row := range tab.rows[1:] {
			for _, field := range strings.Split(row[0], ", ") {
				seen[field] = true
				switch got := want[field]; {
				case strings.HasPrefix(got, "p->"): // the pool's, and the page says in words which
				case got == "" && row[1] == "0":
				case got != row[1]:
					t.Errorf("%s: the page says %s, capi/arena.c %q", field, row[1], got)
				}
			}
		}
	}
	for _, field := range readABI(t).fields["kvpipe_view"] {
		name := field[strings.LastIndex(field, " ")+1:]
		if !seen[name] && name != "reserved" {
			t.Errorf("the page does not say what an arena's view has as %s", name)
		}
	}
	text := regexp.MustCompile(`\s+`).ReplaceAllString(read(t, protocolPage), " ")
	if !strings.Contains(source, `{ "kvpipe", "bytes" }`) || !strings.Contains(text, "fingerprint has one field: `kvpipe` is `bytes`.") {
		t.Error("the fingerprint of an arena is not the same on the page and in capi/arena.c")
	}
}
