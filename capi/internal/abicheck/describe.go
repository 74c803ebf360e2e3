package abicheck

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// headers of the ABI, below include/.
var headers = []string{"kvpipe.h", "kvpipe/ring.h"}

// describe returns the golden file's lines as the compiler cc sees the headers in include; symbols are the library's
// functions as name@VERSION. It works in the empty folder dir.
func describe(cc, include, dir string, symbols []string) (string, error) {
	var program strings.Builder
	program.WriteString("#include <stdio.h>\n#include <stddef.h>\n")
	var body strings.Builder
	for _, name := range headers {
		h, err := read(filepath.Join(include, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&program, "#include <%s>\n", name)
		for _, s := range h.structs {
			fmt.Fprintf(&body, "SIZE(%s);\n", s.name)
			for _, f := range s.fields {
				fmt.Fprintf(&body, "FIELD(%s, %s);\n", s.name, f)
			}
		}
		for _, c := range h.constants {
			fmt.Fprintf(&body, "VALUE(%s);\n", c)
		}
	}
	program.WriteString(`
#define SIZE(t) printf("SIZE(" #t ", %zu)\n", sizeof(struct t))
#define FIELD(t, f) printf("FIELD(" #t ", " #f ", %zu, %zu)\n", offsetof(struct t, f), sizeof(((struct t *)0)->f))
#define VALUE(v) printf("VALUE(" #v ", %lld)\n", (long long)(v))
int main(void)
{
` + body.String() + "return 0;\n}\n")

	source, binary := filepath.Join(dir, "abi.c"), filepath.Join(dir, "abi")
	if err := os.WriteFile(source, []byte(program.String()), 0o600); err != nil {
		return "", err
	}
	if out, err := exec.Command(cc, "-std=c11", "-Wall", "-Werror", "-I", include, "-o", binary, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", cc, source, err, out)
	}
	out, err := exec.Command(binary).Output()
	if err != nil {
		return "", err
	}
	lines := string(out)
	for _, s := range symbols {
		name, version, _ := strings.Cut(s, "@")
		lines += fmt.Sprintf("SYMBOL(%s, %s)\n", name, version)
	}
	return lines, nil
}
