package session

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestNumbers: what crosses to clients, and the limits that the header promises them, have the same numbers here and there.
func TestNumbers(t *testing.T) {
	text, err := os.ReadFile("../../capi/internal/abicheck/testdata/abi.golden")
	if err != nil {
		t.Fatal(err)
	}
	golden := strings.Split(string(text), "\n")
	for name, n := range map[string]uint64{
		"OK": uint64(transfer.OK), "E_INVALID": uint64(transfer.Invalid), "E_NOT_FOUND": uint64(transfer.NotFound), "E_EXPIRED": uint64(transfer.Expired),
		"E_DENIED": uint64(transfer.Denied), "E_INCOMPATIBLE": uint64(transfer.Incompatible), "E_BUSY": uint64(transfer.Busy), "E_QUOTA": uint64(transfer.Quota),
		"E_TIMEOUT": uint64(transfer.Timeout), "E_CANCELLED": uint64(transfer.Cancelled), "E_PEER_GONE": uint64(transfer.PeerGone),
		"E_RESTARTED": uint64(transfer.Restarted), "E_UNAVAILABLE": uint64(transfer.Unavailable), "E_CORRUPT": uint64(transfer.Corrupt), "E_CLOSED": uint64(transfer.Closed),
		"DONE": uint64(transfer.Done), "FAILED": uint64(transfer.Failed), "CANCELLED": uint64(transfer.WasCancelled), "RELEASED": uint64(transfer.Released),
		"QUARANTINED": uint64(transfer.Quarantined), "ROLE_WORKER": uint64(transfer.Worker), "ROLE_SCHEDULER": uint64(transfer.Scheduler),
		"VIEW_PAGED": uint64(layout.Paged), "VIEW_OPAQUE": uint64(layout.Opaque), "NO_BLOCK": uint64(layout.NoBlock),
		"MAX_KEY": maxKey, "MIN_TOKEN": minToken, "MAX_TOKEN": maxToken, "MAX_CONTENT": maxContent, "MAX_TRACE": maxTrace, "MAX_PEER": maxPeer,
		"MAX_ID": layout.MaxFieldKey, "MAX_VALUE": layout.MaxFieldValue, "MAX_FINGERPRINT": layout.MaxFingerprint, "MAX_IDS": layout.MaxIDs,
		"MAX_GROUPS": layout.MaxGroups, "MAX_VIEWS": layout.MaxViews, "MAX_REGIONS": maxRegions, "MAX_INFLIGHT": maxInflight, "MAX_CONSUMERS": maxConsumers,
	} {
		if line := fmt.Sprintf("VALUE(KVPIPE_%s, %d)", name, n); !slices.Contains(golden, line) {
			t.Errorf("the C ABI has no line %s", line)
		}
	}
}
