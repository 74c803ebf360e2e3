package fakenvml

import (
	"os"
	"strings"
	"testing"
)

// TestLibraries: both are there, and every box has a GPU. What they answer is seen by the tests that use them.
func TestLibraries(t *testing.T) {
	for _, path := range []string{Library(t), OldLibrary(t)} {
		if st, err := os.Stat(path); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, name := range []string{"a100", "h200", "gb200", "mig", "pcie"} {
		if !strings.Contains(Scenario(t, name), "\ngpu ") {
			t.Errorf("box %s has no GPU", name)
		}
	}
}

// TestSay: a line comes to the GPU that it is about.
func TestSay(t *testing.T) {
	b := Open(t, "driver 1\ngpu 0:1:0 GPU-1 One\nmemory 1\ngpu 0:2:0 GPU-2 Two\nmemory 2\n")
	b.Say("GPU-1", "xid 79")
	b.Say("GPU-2", "answer 15")
	got, err := os.ReadFile(os.Getenv("KVPIPE_FAKE_NVML"))
	const want = "driver 1\ngpu 0:1:0 GPU-1 One\nmemory 1\nxid 79\ngpu 0:2:0 GPU-2 Two\nmemory 2\nanswer 15\n"
	if string(got) != want || err != nil {
		t.Errorf("%v:\n%s\nwant:\n%s", err, got, want)
	}
}
