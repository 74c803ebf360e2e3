package house

import (
	"regexp"
	"strings"
	"testing"
)

// TestNumbers: limits and times that pages and the header say in words are those of the code.
func TestNumbers(t *testing.T) {
	spaces := regexp.MustCompile(`[\s*#]+`)
	plain := func(text string) string { return spaces.ReplaceAllString(text, " ") }
	for _, c := range []struct {
		page, says string
		file       string
		has        []string
	}{
		{"docs/protocol.md", "One user can have 64 such connections, and all users together 256.", "daemon/session/lobby.go", []string{"maxSilent = 256", "maxSilentPerUID = 64"}},
		{"docs/operating.md", "a user may have 64 such connections and all users together 256.", "daemon/session/lobby.go", []string{"maxSilent = 256", "maxSilentPerUID = 64"}},
		{"docs/protocol.md", "closed in turn, 8 at a time for each user.", "daemon/session/exits.go", []string{"maxClosing = 8 "}},
		{"docs/protocol.md", "A user with 64 connections that are held up in this way is refused (QUOTA); so is everybody while all users together have 1024.", "daemon/session/exits.go",
			[]string{"maxLingering = 64 ", "maxLingeringAll = 1024 "}},
		{"docs/operating.md", "For each user 8 threads wait for that. While 64 connections of a user are held up so, new sessions of that user are refused; while 1024 of all users are, everybody's.",
			"daemon/session/exits.go", []string{"maxClosing = 8 ", "maxLingering = 64 ", "maxLingeringAll = 1024 "}},
		{"docs/protocol.md", "a world of 0 is 1; at most 65536 ranks", "daemon/session/config.go", []string{"maxWorld = 1 << 16"}},
		{"docs/protocol.md", "powers of two, at most 65536, cq_entries at least 8; 0: 1024 and 4096", "daemon/session/config.go", []string{"maxEntries = 1 << 16", "defaultSQ = 1024", "defaultCQ = 4096"}},
		{"docs/protocol.md", "powers of two, at most 65536, cq_entries at least 8; 0: 1024 and 4096", "daemon/session/hello.go", []string{`{"cq_entries", sizes.CQ, 8, maxEntries}`}},
		{"docs/protocol.md", "a power of two from 64 KiB to 64 MiB; 0: 8 MiB", "daemon/session/config.go", []string{"maxArena = 64 << 20", "defaultArena = 8 << 20"}},
		{"docs/protocol.md", "a power of two, at most 65536; 0: 1024", "daemon/session/config.go", []string{"maxEntries = 1 << 16", "defaultLayers = 1024"}},
		{"docs/protocol.md", "at most 4096 views and 64 fields; a key has 1 to 128 bytes, a value at most 256.", "daemon/layout/layout.go",
			[]string{"MaxViews = 4096", "MaxFingerprint = 64", "MaxFieldKey = 128", "MaxFieldValue = 256"}},
		{"docs/protocol.md", "A frame is a u32 length (at most 16 MiB; 16 KiB for the first)", "daemon/peer/frame.go", []string{"maxFrame = 16 << 20", "maxHello = 16 << 10"}},
		{"docs/protocol.md", "the bytes themselves if they are few (at most 64 KiB)", "daemon/peer/decode.go", []string{"maxInline = 64 << 10"}},
		{"docs/protocol.md", "Repeated every second; once Parked came, ever more rarely, in the end every 8 s.", "daemon/transfer/machine.go", []string{"m.cfg.Resend << min( times, 3)"}},
		{"docs/protocol.md", "it comes at most 2 ms later", "daemon/peer/outbox.go", []string{"moreWait = 2 time.Millisecond"}},
		{"docs/protocol.md", "may come with the next message, at most 100 ms later", "daemon/peer/outbox.go", []string{"lateWait = 100 time.Millisecond"}},
		{"docs/protocol.md", "the item stays reserved for 20 s, and for another 20 s each time that the node is back.", "daemon/transfer/doubt.go", []string{"m.now+2 m.cfg.Linger", "m.now + 2 m.cfg.Linger"}},
		{"docs/protocol.md", "The receiver's node repeats End for 30 s.", "daemon/transfer/commit.go", []string{"t.endFor += 2 m.cfg.Linger"}},
		{"docs/protocol.md", "The receiver's node repeats End for 30 s.", "daemon/transfer/config.go", []string{"def(&c.Linger, 10 Second)", "def(&c.Resend, Second)"}},
		{"docs/operating.md", "At most 16,384 wait for one node or session", "daemon/driver/plans.go", []string{"maxPlans = 1 << 14"}},
		{"docs/operating.md", "While more than 64 MiB wait", "daemon/peer/outbox.go", []string{"maxQueued = 64 << 20"}},
		{"docs/operating.md", "When 1 GiB waits it ends in any case.", "daemon/peer/outbox.go", []string{"mostQueued = 1 << 30"}},
		{"docs/operating.md", "Up to 1024 records are kept for it.", "daemon/patient.go", []string{"logRoom = 1024 "}},
		{"docs/operating.md", "64 connections stay;", "daemon/crowd.go", []string{"maxCrowd = 64 "}},
		{"docs/operating.md", "counts 384 more for each piece but the first", "daemon/transfer/grantheld.go", []string{"grantCost = 384 "}},
		{"docs/operating.md", "A connection becomes a session when it says HELLO, for which it has 5 s.", "daemon/session/config.go", []string{"helloTimeout = 5 time.Second"}},
		{"docs/operating.md", "takes longer than `advanced.drain_wait` and 15 s", "daemon/daemon.go", []string{"endTimeout = 5 time.Second", "standing = 10 time.Second"}},
		{"docs/operating.md", "a certificate that ends within two weeks", "daemon/warnings.go", []string{"certificateSoon = 14 24 time.Hour"}},
		{"docs/operating.md", "Those of takes, watches and drops are cut to 1 h; beyond 30 days they are refused.", "daemon/transfer/config.go", []string{"def(&c.MaxTimeout, 3600 Second)"}},
		{"docs/operating.md", "Those of takes, watches and drops are cut to 1 h; beyond 30 days they are refused.", "daemon/session/decode.go", []string{"maxTimeout = transfer.Time(30 24 time.Hour)"}},
		{"docs/operating.md", "within two seconds, it is left alone for 30 seconds, then for longer;", "daemon/peer/ways.go", []string{"wayTimeout = 2 time.Second"}},
		{"docs/operating.md", "within two seconds, it is left alone for 30 seconds, then for longer;", "daemon/peer/rough.go", []string{"roughFirst = 30 time.Second"}},
		{"docs/operating.md", "after three heartbeats, but at least 5 s;", "daemon/peer/links.go", []string{"unheardLeast = 5 time.Second"}},
		{"docs/operating.md", "The daemon remembers for 30 seconds which node an address led to", "daemon/transfer/route.go", []string{"routeAge = 30 Second"}},
		{"docs/operating.md", "each serves two measurements at a time", "daemon/benchserve.go", []string{"benchServes = 2 "}},
		{"docs/operating.md", "hand-overs of 32 MiB in blocks of each size", "daemon/bench.go", []string{"benchBytes = 32 << 20"}},
		{"docs/operating.md", "After two minutes the log,", "discovery/gpu/prompt.go", []string{"hung = 2 time.Minute"}},
		{"docs/operating.md", "stopping the daemon takes five seconds longer", "discovery/gpu/watch.go", []string{"stuck = 5 time.Second"}},
		{"docs/operating.md", "for links of GPUs without a fabric, within ten minutes", "discovery/gpu/watch.go", []string{"lookEvery = 30 time.Second", "readEvery = 10 time.Minute"}},
		{"docs/operating.md", "for ten times as long as it took to collect them, a second at most", "daemon/metrics/recent.go", []string{"shareOfTime = 10 ", "maxAge = time.Second"}},
		{"docs/ARCHITECTURE.md", "which instances it had before (the last 8)", "daemon/transfer/roster/lives.go", []string{"KeptPast = 8 "}},
		{"include/kvpipe.h", "power of two, 8 to 65,536; 0: 4096.", "daemon/session/hello.go", []string{`{"cq_entries", sizes.CQ, 8, maxEntries}`}},
		{"include/kvpipe.h", "a session has at most 65,536 (QUOTA)", "capi/internal.h", []string{"KV_MAX_RECORDS 65536u"}},
		{"include/kvpipe.h", "0: 64; 1: none ahead; at most 1024", "capi/endpoint.h", []string{"KV_WINDOW 64u", "KV_WINDOW_MAX 1024u"}},
		{"include/kvpipe.h", "exceed 67,108,864 tokens", "daemon/transfer/bind.go", []string{"MaxHeldTokens = 64 << 20"}},
	} {
		if !strings.Contains(plain(read(t, "../../"+c.page)), c.says) {
			t.Errorf("%s does not say %q, which is compared with %s", c.page, c.says, c.file)
		}
		text := plain(read(t, "../../"+c.file))
		for _, has := range c.has {
			if !strings.Contains(text, has) {
				t.Errorf("%s has no %q: does %s still say the truth, %q?", c.file, has, c.page, c.says)
			}
		}
	}
}
