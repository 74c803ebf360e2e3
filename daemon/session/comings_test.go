package session

import "testing"

// TestComings: what one user does costs another nothing.
func TestComings(t *testing.T) {
	var c comings
	for told := true; told; {
		told, _ = c.due(1000)
	}
	for _, uid := range []uint32{0, 999, 1001, 65534} {
		if told, untold := c.due(uid); !told || untold != 0 {
			t.Errorf("user %d: told %v after %d that were not", uid, told, untold)
		}
	}
}
