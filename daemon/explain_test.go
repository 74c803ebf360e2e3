package daemon

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// explains asks the admin interface about a peer; "": the node itself.
func (n *node) explains(peer string) (e admin.Explain) {
	n.t.Helper()
	if err := n.ctl.Get(n.t.Context(), "explain", url.Values{"peer": {peer}}, &e); err != nil {
		n.t.Fatal(err)
	}
	return e
}

// TestWhatIsNotProtectedShows: insecure and data_plain are in the log from the start, in status and in explain, with a channel and without one.
func TestWhatIsNotProtectedShows(t *testing.T) {
	for name, c := range map[string]struct {
		change     func(*config.Config)
		log        []string
		warning    string // of status
		configured string // notes of explain, without a channel
		there      string // and with one
		secure     bool
		plain      bool
		why        string // of plain, with a channel
		loopback   bool   // links on this machine are plain, as they are by default
	}{
		"neither": {
			change: func(*config.Config) {}, log: []string{"msg=ready", "insecure=false data_plain=false"}, secure: true,
		},
		"insecure": {
			change: func(c *config.Config) { c.Insecure = true },
			log:    []string{"insecure=true data_plain=false", `level=WARN msg="insecure: peers are not authenticated`}, warning: "insecure: ",
			configured: "insecure is configured: ", there: "insecure: the peer did not authenticate itself", plain: true, why: "insecure",
		},
		"data_plain": {
			change: func(c *config.Config) { c.DataPlain = true },
			log:    []string{"insecure=false data_plain=true", `level=WARN msg="data_plain: data links to peers that say so too`}, warning: "data_plain: ",
			configured: "data_plain is configured: ", there: "data links are not encrypted: both sides say data_plain", secure: true, plain: true, why: "data_plain",
		},
		"loopback": {
			change: func(*config.Config) {}, loopback: true, secure: true, why: "loopback",
			log: []string{"insecure=false data_plain=false"}, there: "data links are not encrypted: both ends are on this machine",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, func(cfg *config.Config) {
				cfg.TCP.EncryptLoopback = !c.loopback
				c.change(cfg)
			})
			for _, want := range c.log {
				eventually(t, "the log has "+want, func() bool { return strings.Contains(a.log.String(), want) })
			}
			shows(t, "status", get[admin.Status](a, "status").Warnings, c.warning)
			check := func(peer, note string, plain bool) {
				t.Helper()
				e := a.explains(peer)
				if e.Secure != c.secure || e.DataPlain != plain || (e.WhyPlain != "") != plain {
					t.Errorf("explain %q: secure %v, data_plain %v (%q), want %v and %v", peer, e.Secure, e.DataPlain, e.WhyPlain, c.secure, plain)
				}
				shows(t, "explain "+peer, e.Notes, note)
			}
			check("", c.configured, c.plain)
			check("b", c.configured, c.plain)
			idle := admin.ExplainTried{Transport: "tcp", Answer: "idle", Reason: "not connected: that happens on first use"}
			if e := a.explains("b"); !slices.Contains(e.Choices, idle) { // nothing is the matter with it
				t.Errorf("explain before the first use: %+v, want %+v", e.Choices, idle)
			}
			a.peers.Dial("b")
			up := func() bool { p, err := view{a.Daemon}.status("b"); return err == nil && p.State == "up" }
			eventually(t, "a channel", up)
			check("b", c.there, c.why != "")
			if c.why != "" {
				eventually(t, "the log says why", func() bool { return strings.Contains(a.log.String(), "data_plain_reason="+c.why) })
				if p := get[[]admin.Peer](a, "peers"); len(p) != 1 || p[0].WhyPlain != c.why {
					t.Errorf("peers: %+v, plain by %q", p, c.why)
				}
			}
			b.stop()
			eventually(t, "no channel", func() bool { return !up() })
			check("b", c.configured, c.plain)
		})
	}
}

// shows wants one text that begins with want, "": none, among those about protection.
func shows(t *testing.T, where string, all []string, want string) {
	t.Helper()
	got := slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		return !strings.Contains(s, "insecure") && !strings.Contains(s, "data_plain") && !strings.Contains(s, "not encrypted")
	})
	if want == "" && len(got) == 0 || want != "" && len(got) == 1 && strings.HasPrefix(got[0], want) {
		return
	}
	t.Errorf("%s says %q, want one that begins with %q", where, got, want)
}

// TestTheLogSaysWhichTransportServes: with the peer that comes up, and with each take that ends at its producer.
func TestTheLogSaysWhichTransportServes(t *testing.T) {
	a, b := pair(t, nil)
	handOver(a.join("prefill", 1), b.join("decode", 1), "a", "k", "", token())
	for _, words := range [][]string{{`msg="peer up"`, "peer=b", "transport=tcp"}, {`msg="take ended at its producer"`, "peer=b", "transport=tcp"}} {
		a.records(t, words...)
	}
}

// records waits for a record with all these words.
func (n *node) records(t *testing.T, words ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("a record with %q", words), func() bool {
		for record := range strings.Lines(n.log.String()) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(record, w) }) {
				return true
			}
		}
		return false
	})
}

// TestATakeSaysWhichTransportIsNotAllowed: whoever reads how it ended need not ask explain what to change, and where.
func TestATakeSaysWhichTransportIsNotAllowed(t *testing.T) {
	n := start(t, "a", t.TempDir(), func(c *config.Config) { c.Transports = []string{"tcp"} })
	producer, consumer, key := n.join("prefill", 1), n.join("decode", 1), token()
	if _, err := producer.Submit(&transfer.OfferOp{Key: []byte("k"), Token: key, Consumers: 1, Sealed: true, Blocks: producer.all()}); err != nil {
		t.Fatal(err)
	}
	c := consumer.do(&transfer.TakeOp{Key: []byte("k"), Token: key, TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 20e9, Blocks: consumer.all()})
	const want = `local: not on the allow-list: add it to transports in the configuration of node "a" (now ["tcp"])`
	if got := c.Cause(); got.Reason != transfer.Unavailable || !strings.HasSuffix(got.Text, want) {
		t.Errorf("%+v, want %s", got, want)
	}
}

// TestAPeerThatAllowsNoTransport: explain says so, and a take by the peer ends with that reason, at once, instead of being granted what it will refuse.
func TestAPeerThatAllowsNoTransport(t *testing.T) {
	ca := t.TempDir()
	a := start(t, "a", ca, nil)
	b := start(t, "b", ca, func(c *config.Config) {
		c.Peers.Nodes = map[string]string{"a": a.listenAddr()}
		c.Transports = []string{"local"}
	})
	producer, consumer, key := a.join("prefill", 1), b.join("decode", 1), token()
	if _, err := producer.Submit(&transfer.OfferOp{Key: []byte("k"), Token: key, Consumers: 1, Sealed: true, Blocks: producer.all()}); err != nil {
		t.Fatal(err)
	}
	const want = `not on the allow-list of node "b" (transports = ["local"] there)`
	c := consumer.do(&transfer.TakeOp{Key: []byte("k"), Token: key, Peer: "a", TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 20e9, Blocks: consumer.all()})
	if got := c.Cause(); got.Reason != transfer.Unavailable || !strings.Contains(got.Text, `no transport reaches peer "b"`) || !strings.Contains(got.Text, "tcp: "+want) {
		t.Errorf("the take ended with %+v, want tcp %s", got, want)
	}
	e := a.explains("b")
	for _, tried := range e.Choices {
		if tried.Transport == "tcp" && (tried.Answer != "refused" || tried.Reason != want) {
			t.Errorf("explain: %+v, want tcp refused, %s", tried, want)
		}
	}
	if p := get[[]admin.Peer](a, "peers"); e.Transport != "" || len(p) != 1 || p[0].Transport != "" {
		t.Errorf("explain chooses %q; peers: %+v", e.Transport, p)
	}
	a.records(t, `msg="peer up"`, "peer=b", `transport=""`)
}
