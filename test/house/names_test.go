package house

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// found returns what the first group matches in a file, which has to be there at least so often.
func found(t *testing.T, path, pattern string, least int) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, path), -1) {
		all[m[1]] = true
	}
	if len(all) < least {
		t.Fatalf("%s: %d names by %s", path, len(all), pattern)
	}
	return all
}

// pages are those that a user reads.
func pages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(all) < 5 {
		t.Fatalf("%d pages: %v", len(all), err)
	}
	return append(all, "../../README.md", "../../CHANGELOG.md", "../../bench/README.md", "../../python/README.md")
}

// TestPagesNameWhatThereIs: commands, flags, settings and metrics that a page names can be given, set and asked for.
func TestPagesNameWhatThereIs(t *testing.T) {
	commands := map[string]bool{"completion": true} // by cobra itself
	sources, err := filepath.Glob("../../cmd/kvpipectl/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range sources {
		for name := range found(t, path, `Use: "([a-z]+)`, 0) {
			commands[name] = true
		}
	}
	flags := found(t, "../../cmd/kvpiped/options.go", `f\.(?:StringVar\(&[\w.]+, |BoolVar\(&[\w.]+, |Func\()"([a-z-]+)"`, 12)
	flags["help"] = true
	metrics := found(t, "../../daemon/metrics/testdata/page.txt", `(?m)^# TYPE (kvpipe_\w+)`, 40)
	functions := found(t, "../../capi/kvpipe.symbols", `(kvpipe_\w+)`, 40)
	settings, tables := map[string]bool{}, map[string]bool{}
	table := ""
	for line := range strings.Lines(read(t, "../../packaging/kvpiped.toml")) {
		if m := regexp.MustCompile(`^\[(\w+)\]`).FindStringSubmatch(line); m != nil {
			table, tables[m[1]] = m[1]+".", true
		} else if m := regexp.MustCompile(`^#(\w+) = `).FindStringSubmatch(line); m != nil {
			settings[table+m[1]] = true
		}
	}
	for _, page := range pages(t) {
		text := read(t, page)
		each := func(pattern string, bad func(string) bool, what string) {
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
				if bad(m[1]) {
					t.Errorf("%s: %s: there is no such %s", page, m[0], what)
				}
			}
		}
		each("(?:`|\\$ |&& |(?m:^))kvpipectl ([a-z]+)", func(name string) bool { return !commands[name] }, "command")
		each("`((?:\\w+)\\.\\w+)`", func(name string) bool {
			first, _, _ := strings.Cut(name, ".")
			return tables[first] && !settings[name] && !strings.HasSuffix(name, ".py")
		}, "setting")
		each("`(kvpipe_[a-z_]+)[`{]", func(name string) bool {
			return !metrics[name] && !functions[name] && !strings.Contains(read(t, "../../include/kvpipe.h")+read(t, "../../include/kvpipe/ring.h"), name)
		}, "metric or function")
		for _, line := range regexp.MustCompile(`(?m)(?:^|\x60|\$ |-- )kvpiped (--[^\n\x60#&|]*)`).FindAllStringSubmatch(text, -1) {
			for _, m := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(line[1], -1) {
				if !flags[m[1]] {
					t.Errorf("%s: kvpiped %s: there is no --%s", page, line[1], m[1])
				}
			}
		}
	}
	guide := read(t, "../../docs/operating.md")
	for name := range flags {
		if !strings.Contains(guide, "`--"+name) {
			t.Errorf("docs/operating.md does not say what kvpiped --%s does", name)
		}
	}
	for name := range commands {
		if name != "init" && name != "node" && name != "version" && !strings.Contains(guide, name) {
			t.Errorf("docs/operating.md does not say what kvpipectl %s does", name)
		}
	}
}

// TestStatesAreExplained: the words that kvpipectl shows for offers, pipes, transfers and GPUs are in its guide.
func TestStatesAreExplained(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Enum        []string `json:"enum"`
					Description string   `json:"description"`
				} `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal([]byte(read(t, "../../daemon/admin/openapi.json")), &doc); err != nil {
		t.Fatal(err)
	}
	state := func(of string) []string { return doc.Components.Schemas[of].Properties["state"].Enum }
	words := slices.Concat(state("Offer"), state("Pipe"), state("GPUs"))
	_, after, _ := strings.Cut(doc.Components.Schemas["Transfer"].Properties["state"].Description, "consumer: ")
	words = append(words, regexp.MustCompile(`[a-z]+ing\b`).FindAllString(after, -1)...)
	if len(words) < 25 {
		t.Fatalf("%d states: %q", len(words), words)
	}
	guide := read(t, "../../docs/operating.md")
	for _, word := range words {
		if !strings.Contains(guide, "`"+word+"`") {
			t.Errorf("docs/operating.md does not explain the state %q", word)
		}
	}
}
