package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sample = "../../packaging/kvpiped.toml"

// assignment is a key of the sample, commented out: no space follows the "#", unlike in prose.
var assignment = regexp.MustCompile(`(?m)^#([a-z_]+) = (.*)$`)

func readSample(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// sampleKeys lists the sample's keys with their tables.
func sampleKeys(text string) []string {
	var out []string
	table := ""
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if strings.HasPrefix(l, "[") {
			table = strings.Trim(l, "[]") + "."
		} else if m := assignment.FindStringSubmatch(l); m != nil {
			out = append(out, table+m[1])
		}
	}
	return out
}

func TestSampleHasEveryKeyOnce(t *testing.T) {
	got, want := sampleKeys(readSample(t)), Keys()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packaging/kvpiped.toml and the keys of Config differ (-keys +sample):\n%s", diff)
	}
}

func TestSampleShowsTheDefaults(t *testing.T) {
	text := readSample(t)
	for name, text := range map[string]string{
		"as it is": text, "all keys set": assignment.ReplaceAllString(text, "$1 = $2"),
	} {
		c, err := Parse([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := Changed(Default(), c); got != nil {
			t.Errorf("%s: other than the defaults are %q", name, got)
		}
	}
}

// TestSampleExplains: every key is preceded by prose; keys that share it follow each other.
func TestSampleExplains(t *testing.T) {
	explained := false
	for l := range strings.Lines(readSample(t)) {
		switch l = strings.TrimSpace(l); {
		case assignment.MatchString(l):
			if !explained {
				t.Errorf("%q has no explanation", l)
			}
		case strings.HasPrefix(l, "# "):
			explained = true
		case l == "":
			explained = false
		}
	}
}

// TestSampleSaysWhatReloads: the paragraph of a key says [reload] when SIGHUP changes it.
func TestSampleSaysWhatReloads(t *testing.T) {
	table, paragraph := "", ""
	for l := range strings.Lines(readSample(t)) {
		switch l = strings.TrimSpace(l); {
		case strings.HasPrefix(l, "["):
			table = strings.Trim(l, "[]") + "."
		case l == "":
			paragraph = ""
		case assignment.MatchString(l):
			key := table + assignment.FindStringSubmatch(l)[1]
			if said := strings.Contains(paragraph, "[reload]"); said != Reloadable[key] {
				t.Errorf("%s: the sample says [reload] %t, Reloadable is %t", key, said, Reloadable[key])
			}
		default:
			paragraph += l
		}
	}
}

func TestReloadableAreKeys(t *testing.T) {
	for key := range Reloadable {
		if !slices.Contains(Keys(), key) {
			t.Errorf("Reloadable names %q, which is no key", key)
		}
	}
}

func TestChanged(t *testing.T) {
	a, b := Default(), Default()
	if got := Changed(a, b); got != nil {
		t.Errorf("nothing differs, Changed says %q", got)
	}
	b.Peers.Nodes, b.NICDeny = map[string]string{}, []string{}
	if got := Changed(a, b); got != nil {
		t.Errorf("none is as one that is not set, Changed says %q", got)
	}
	b.Node, b.TCP.Streams, b.Peers.Nodes = "x", 3, map[string]string{"n": "h:1"}
	if got, want := Changed(a, b), []string{"node", "peers.nodes", "tcp.streams"}; !slices.Equal(got, want) {
		t.Errorf("Changed says %q, want %q", got, want)
	}
}
