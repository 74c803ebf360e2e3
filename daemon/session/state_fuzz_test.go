package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
)

// FuzzState: whatever lies where the daemon before left its state, it is refused with a reason, or has in it what HELLOs of before can have
// said: nobody is awaited who cannot come, none comes without the secret, and what is written of it is read as the same again.
func FuzzState(f *testing.F) {
	secret := [32]byte{1, 2, 3}
	written := newState("")
	for i, who := range []identity{
		{Engine: "prefill-0", Instance: "one", Owner: "uid 0, cgroup /a", Role: transfer.Worker, Rank: 1, TPWorld: 2, PPWorld: 1},
		{Engine: "prefill-0", Instance: "one", Owner: "uid 0, cgroup /a", Role: transfer.Scheduler, Rank: transfer.NoRank},
		{Engine: "<é \" \\ 日本>", Instance: "auto-0123456789abcdef", Owner: "uid 7, not visible", Role: transfer.Worker},
	} {
		written.put(&session{id: transfer.SessionID(7<<32 | i + 1), who: who, secret: secret}, roster.Return{}, []string{"none"})
	}
	written.hasLayout(7<<32 | 1)
	b, _, err := written.encode()
	if err != nil {
		f.Fatal(err)
	}
	if f1, err := parseState(b); err != nil || len(f1.Sessions) != 3 || !f1.Sessions[0].Layout || len(f1.Instances) != 2 || f1.Instances[1].Ranks[0] != 1 || len(f1.Past) != 2 {
		f.Fatalf("what was written is read as %+v, %v", f1, err)
	}
	f.Add(b)
	sum := sha256.Sum256(secret[:])
	one := func(session, more string) string {
		return fmt.Sprintf(`{"version":1,"sessions":[{"session":%s,"engine":"e","instance":"i","owner":"uid 0","role":1,"secret_sha256":"%x"%s}]}`, session, sum, more)
	}
	for _, s := range []string{
		"", "{", "[]", "null", `{"version":0}`, `{"version":2,"more":[1]}`, `{"version":1,"sessions":null}`, one("1", ""), one("1", `,"role":3,"rank":4294967295`),
		one("18446744073709551615", `,"layout":true`), one("18446744073709551616", ""), one("-1", ""), one("1", `,"role":9`), one("1", `,"engine":"\u0000"`),
		one("1", `,"instance":"\ud800"`), one("1", `,"SESSION":2`), one("1", `,"secret_sha256":"zz"`), strings.TrimSuffix(one("1", ""), "}") + `,"past":[{"engine":"e","owner":"uid 0","instances":["a","i"]},{}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		sessions, err := parseState(b)
		if err != nil {
			return
		}
		st := newState("")
		st.roster.Recall(sessions)
		awaited := st.roster.Away()
		for i, r := range awaited {
			if i > 0 && awaited[i-1].ID >= r.ID {
				t.Errorf("session %#x is awaited after %#x", uint64(r.ID), uint64(awaited[i-1].ID))
			}
			var h ring.Hello
			for _, said := range []struct{ field, text string }{{string(h.Engine[:]), r.Engine}, {string(h.Instance[:]), r.Instance}} {
				field := []byte(said.field)
				if name, err := ring.String(field[:copy(field, said.text)], "name"); err != nil || name != said.text || name == "" {
					t.Errorf("no HELLO says %q: %q, %v", said.text, name, err)
				}
			}
			if r.Role == transfer.Worker && r.Rank >= maxWorld || r.Role == transfer.Scheduler && r.Rank != transfer.NoRank || r.Role != transfer.Worker && r.Role != transfer.Scheduler {
				t.Errorf("awaited: role %v with rank %d", r.Role, r.Rank)
			}
			hash, err := hex.DecodeString(r.Secret)
			if err != nil || len(hash) != sha256.Size {
				t.Errorf("no secret has the hash %q", r.Secret)
			}
			who := identity{Engine: r.Engine, Instance: r.Instance, Owner: r.Owner, Role: r.Role, Rank: r.Rank}
			was, _ := hex.DecodeString(r.WasSecret)
			if may := st.mayResume(roster.Return{ID: r.ID, Proof: sum}, &who) == nil; may != (bytes.Equal(hash, sum[:]) || bytes.Equal(was, sum[:])) {
				t.Errorf("session %#x with the hashes %s and %q may be resumed: %v", uint64(r.ID), r.Secret, r.WasSecret, may)
			}
		}
		text, _, err := st.encode()
		if err != nil {
			t.Fatal(err)
		}
		again := newState("")
		if sessions, err = parseState(text); err != nil {
			t.Fatalf("what is written of it is not read: %v\n%s", err, text)
		}
		if again.roster.Recall(sessions); !slices.Equal(again.roster.Away(), awaited) {
			t.Errorf("read again it is %+v\nand was %+v", again.roster.Away(), awaited)
		}
		if st.giveUp(); len(st.roster.File().Sessions) != 0 {
			t.Errorf("what did not come back is remembered: %+v", st.roster.File())
		}
	})
}
