package config

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// FuzzParse: whatever a file says, it is refused with lines that say something, not too many, or read into something that Check can judge, and
// that is equal when it is read again.
func FuzzParse(f *testing.F) {
	if b, err := os.ReadFile(sample); err == nil {
		f.Add(b)
		f.Add(assignment.ReplaceAll(b, []byte("$1 = $2")))
	}
	for _, s := range []string{
		"", "node = \"a\"", "peers = { nodes = { a = \"b:1\" } }", "peers.nodes.\"a.b\" = \"c:1\"", "[peers.nodes]\na = 1", "[[tls]]", "transports = [ # x\n\"tcp\", ]",
		"[limits]\nsession_pinned = \"99999999999999999999TiB\"", "[a]\n[a.b]\nc = { d = [1, {}] }", "node = '''\nx'''", "NODE = \"a\"", "x = {", strings.Repeat("[x]\n", 2) + "[a]", "a=1\nb=1\nc=1\nd=1\ne=1\nf=1\ng=1\nh=1\ni=1\nj=1", "[", "\"\" = 1",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		c, err := Parse(doc)
		if err != nil {
			lines := strings.Split(err.Error(), "\n")
			if slices.Contains(lines, "") || len(lines) > maxTold+1 {
				t.Errorf("error text %q", lines)
			}
			return
		}
		_ = c.Check()
		if again, err := Parse(doc); err != nil || Changed(c, again) != nil {
			t.Errorf("read twice, it differs: %v %q", err, Changed(c, again))
		}
	})
}
