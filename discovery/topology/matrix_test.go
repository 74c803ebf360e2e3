package topology

import (
	"bytes"
	"testing"
)

// TestMatrix: what people see of each machine.
func TestMatrix(t *testing.T) {
	for _, name := range machines(t) {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Read(machine(t, name)).Matrix(&out); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".txt", out.Bytes())
		})
	}
}
