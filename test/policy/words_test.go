package policy

import (
	"bytes"
	"regexp"
)

// words are what no file of the project may say: promises to do it later, and
// folders of one particular machine. The pieces are joined here so that this
// file does not say them either.
var words = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`), "do it, or say what is missing and why"},
	{regexp.MustCompile(`(^|[\s"'=(:,\x60])/(work|ro` + `ot)/`), "a path of one machine"},
	{regexp.MustCompile(`/tmp` + `/kv\b`), "a path of one machine"},
	{regexp.MustCompile(`/ho` + `me/[a-z]`), "a path of one machine"},
}

var wordRule = rule{
	name:  "words",
	check: checkWords,
	bad: []map[string]string{
		one("docs/a.md", "TO"+"DO: write it\n"),
		one("a.go", "package a // FIX"+"ME later\n"),
		one("Makefile", "build:\n\tcp x /wor"+"k/main\n"),
		one("a.py", "open('/ro"+"ot/.cache')\n"),
		one("a.c", "char *p = \"/tmp"+"/kv/x\";\n"),
	},
	good: []map[string]string{
		one("a.md", "mktemp in /tmp/kvpipe-XXXXXX, todos, and docs/work/flow\n"),
		one("LICENSE", "anything /ro"+"ot/ at all"),
	},
}

func checkWords(tr tree) []violation {
	var found []violation
	for _, f := range tr {
		if f.path == "LICENSE" {
			continue
		}
		for i, line := range bytes.Split(f.text, []byte("\n")) {
			for _, w := range words {
				if hit := w.pattern.Find(line); hit != nil {
					found = append(found, violation{f.path, i + 1, string(hit) + ": " + w.why})
				}
			}
		}
	}
	return found
}
