package metrics

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	docs      = "../../docs/operating.md"
	docsBegin = "<!-- metrics: go test ./daemon/metrics -update -->\n"
	docsEnd   = "<!-- end of metrics -->\n"
)

// family is one metric of a page.
type family struct{ name, kind, help, labels string }

var (
	helpLine   = regexp.MustCompile(`^# HELP (kvpipe_\S+) (.*)\n$`)
	typeLine   = regexp.MustCompile(`^# TYPE (kvpipe_\S+) (\S+)\n$`)
	sampleLine = regexp.MustCompile(`^(kvpipe_[a-z_]+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+\n$`)
	labelName  = regexp.MustCompile(`([a-z_]+)=`)
)

func families(body string) (out []family) {
	for l := range strings.Lines(body) {
		if m := helpLine.FindStringSubmatch(l); m != nil {
			out = append(out, family{name: m[1], help: m[2]})
		} else if m := typeLine.FindStringSubmatch(l); m != nil {
			out[len(out)-1].kind = m[2]
		} else if m := sampleLine.FindStringSubmatch(l); m != nil && out[len(out)-1].labels == "" {
			var names []string
			for _, n := range labelName.FindAllStringSubmatch(m[2], -1) {
				if n[1] != "le" {
					names = append(names, "`"+n[1]+"`")
				}
			}
			slices.Sort(names)
			out[len(out)-1].labels = strings.Join(names, ", ")
		}
	}
	return out
}

// TestDocs: the table in docs/operating.md is that of the page.
func TestDocs(t *testing.T) {
	_, body := scrape(t, New(fixed))
	var table strings.Builder
	table.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, f := range families(body) {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", f.name, f.kind, f.labels, f.help)
	}
	b, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(b), docsBegin)
	got, after, closed := strings.Cut(rest, docsEnd)
	if !found || !closed {
		t.Fatalf("%s lacks %q or %q", docs, docsBegin, docsEnd)
	}
	if *update {
		if err := os.WriteFile(docs, []byte(before+docsBegin+table.String()+docsEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(table.String(), got); diff != "" {
		t.Errorf("%s (-page +docs); -update writes it:\n%s", docs, diff)
	}
}
