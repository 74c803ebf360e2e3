package house

import (
	"regexp"
	"testing"
)

// TestProtocolStates: every state that the daemon shows has its row.
func TestProtocolStates(t *testing.T) {
	seen := map[string]bool{}
	for _, tab := range tables(t) {
		if tab.headed("state", "meaning", "ends") {
			for _, row := range tab.rows[1:] {
				seen[row[0]] = true
			}
		}
	}
	shown := 0
	for _, file := range []string{"snapshot.go", "snapshotpipes.go"} {
		for _, line := range regexp.MustCompile(`(?m)^.*State.*$`).FindAllString(read(t, "../../daemon/transfer/"+file), -1) {
			for _, word := range regexp.MustCompile(`"([a-z]+)"`).FindAllStringSubmatch(line, -1) {
				if shown++; !seen[word[1]] {
					t.Errorf("state %q of daemon/transfer/%s has no row", word[1], file)
				}
			}
		}
	}
	if shown < 15 {
		t.Errorf("daemon/transfer shows %d states: look for them elsewhere", shown)
	}
}
