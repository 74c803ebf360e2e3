package house

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestCTest: a C test passes with its daemon alone, which is there before and lives to the end. Whatever becomes of one program, others are judged.
func TestCTest(t *testing.T) {
	const program = "#!/bin/sh\n"
	for _, c := range []struct {
		name, daemon, test string // what the two do
		want               bool
		says               string
	}{
		{"all is well", "", "[ -e $KVPIPE_SOCKET ]", true, "part passed: 2 programs"},
		{"a test that fails", "", "exit 3", false, "FAIL  test_a: exit status 3"},
		{"a test that skips", "", "echo no such thing; exit 77", true, "skip: test_a: no such thing"},
		{"a daemon that crashes", "", "read -r sleep daemon <$(dirname $KVPIPED)/pids; kill -ABRT $daemon; kill $sleep", false, "kvpiped ended with -6:\n"},
		{"a daemon that ends badly", "trap 'kill $!; echo how come; exit 2' TERM", "", false, "kvpiped ended with 2:\nmsg=ready\nhow come"},
		{"a daemon that does not start", "echo no; exit 1", "", false, "FAIL  test_a: exit status 1\nkvpiped did not start:\nno"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := makefiles(t, map[string]string{
				"capi/tests/test_a.c": "/* needs: daemon */\n",
				"capi/tests/test_b.c": "/* nothing */\n",
				"asan/test_b":         program,
				"build/bin/kvpiped": program + "trap 'kill $!; exit 0' TERM\n" + c.daemon + `
while [ "$1" != --socket ]; do shift; done
touch "$2"
sleep 100 &
echo $! $$ >"$(dirname "$0")/pids"
echo msg=ready
wait
`,
				"asan/test_a": program + c.test + "\n",
			})
			t.Setenv("TMPDIR", tree)
			out, ok := script(t, "", filepath.Join(tree, "scripts/ctest.py"), filepath.Join(tree, "asan/test_a"), filepath.Join(tree, "asan/test_b"))
			if ok != c.want || !strings.Contains(out, c.says) || !strings.Contains(out, "ok    test_b") {
				t.Errorf("passed: %v, want %v and %q in:\n%s", ok, c.want, c.says, out)
			}
		})
	}
	if out, ok := script(t, "", "ctest.py"); ok {
		t.Errorf("no programs at all pass:\n%s", out)
	}
}
