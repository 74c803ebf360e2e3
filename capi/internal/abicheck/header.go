package abicheck

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// header is what a C header declares, by name.
type header struct {
	structs   []structure
	constants []string // enum values and numeric macros
	functions []string // exported ones
}

type structure struct {
	name   string
	fields []string
}

var (
	comments  = regexp.MustCompile(`(?s)/\*.*?\*/`)
	structs   = regexp.MustCompile(`(?s)\bstruct (\w+) \{(.*?)\}\s*;`)
	enums     = regexp.MustCompile(`(?s)\benum \w+ \{(.*?)\}\s*;`)
	macros    = regexp.MustCompile(`(?m)^#define (KVPIPE_\w+)[ \t]+(?:\(?[0-9]|INT64_MAX)`)
	functions = regexp.MustCompile(`(?m)^KVPIPE_API [^(]*?(\w+)\(`)
	lastName  = regexp.MustCompile(`(\w+)(?:\[\w+\])?\s*$`)
)

// read parses a header of ours; it knows the few forms that they use, and refuses others.
func read(path string) (header, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return header{}, err
	}
	src := comments.ReplaceAllString(string(text), "")
	var h header
	for _, m := range structs.FindAllStringSubmatch(src, -1) {
		s := structure{name: m[1]}
		for decl := range strings.SplitSeq(m[2], ";") {
			if strings.TrimSpace(decl) == "" {
				continue
			}
			// "uint32_t first, second[4]": the names stand last.
			for part := range strings.SplitSeq(decl, ",") {
				name := lastName.FindStringSubmatch(part)
				if name == nil {
					return header{}, fmt.Errorf("%s: struct %s: cannot read %q", path, s.name, strings.TrimSpace(decl))
				}
				s.fields = append(s.fields, name[1])
			}
		}
		h.structs = append(h.structs, s)
	}
	for _, m := range enums.FindAllStringSubmatch(src, -1) {
		for value := range strings.SplitSeq(m[1], ",") {
			if name, _, _ := strings.Cut(strings.TrimSpace(value), " "); name != "" {
				h.constants = append(h.constants, name)
			}
		}
	}
	for _, m := range macros.FindAllStringSubmatch(src, -1) {
		h.constants = append(h.constants, m[1])
	}
	for _, m := range functions.FindAllStringSubmatch(src, -1) {
		h.functions = append(h.functions, m[1])
	}
	return h, nil
}
