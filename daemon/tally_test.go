package daemon

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestZerosBeforeTheFirst: rate() sees the first of what counts from 0, and not of what appears as 1.
func TestZerosBeforeTheFirst(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	page := n.page()
	shown := func(series string, v int) {
		t.Helper()
		if line := fmt.Sprintf("\n%s %d\n", series, v); !strings.Contains(page, line) {
			t.Errorf("the page lacks %s", strings.TrimSpace(line))
		}
	}
	for _, operation := range []string{"offer", "take", "put", "get"} {
		shown(`kvpipe_operations_total{operation="`+operation+`",reason="ok",status="done"}`, 0)
		shown(`kvpipe_operations_total{operation="`+operation+`",reason="cancelled",status="cancelled"}`, 0)
		for _, r := range []string{"timeout", "not_found", "peer_gone", "quota"} {
			shown(`kvpipe_operations_total{operation="`+operation+`",reason="`+r+`",status="failed"}`, 0)
		}
	}
	for _, r := range []string{"closed", "peer_gone", "invalid", "timeout"} {
		shown(`kvpipe_sessions_ended_total{reason="`+r+`"}`, 0)
	}
	for _, state := range []string{"joining", "open", "sealed", "orphaned"} {
		shown(`kvpipe_offers{state="`+state+`"}`, 0)
	}
	shown(`kvpipe_operations_total{operation="take",reason="cancelled",status="failed"}`, 0) // it was begun again through another node
	for _, none := range []string{`reason="ok",status="failed"`, `operation="offer",reason="cancelled",status="failed"`, `sessions_ended_total{reason="ok"}`} {
		if strings.Contains(page, none) {
			t.Errorf("the page has %s", none)
		}
	}
	if count := strings.Count(page, "\nkvpipe_operations_total{"); count > 64 {
		t.Errorf("%d series of operations before there was any", count)
	}

	n.tally.completed(&transfer.Complete{UserData: 1, Kind: transfer.KindTake, Status: transfer.Failed, Reason: transfer.Timeout})
	const timedOut = `kvpipe_operations_total{operation="take",reason="timeout",status="failed"}`
	eventually(t, "a scrape shows it", func() bool { page = n.page(); return !strings.Contains(page, timedOut+" 0\n") })
	shown(timedOut, 1)
}
