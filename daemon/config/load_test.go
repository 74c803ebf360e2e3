package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestParseErrors: what people read when the file is wrong, word by word.
func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{"nodee = \"a\"", `line 1: unknown key "nodee"; did you mean "node"?`},
		{"\n\n[peers]\nheartbeet = \"1s\"", `line 4: unknown key "peers.heartbeet"; did you mean "peers.heartbeat"?`},
		{"nodee = \"a\"\n[tcp]\nstreams = 1\n[peer]\nnodes = {}", "line 1: unknown key \"nodee\"; did you mean \"node\"?\nline 4: unknown key \"peer\"; did you mean \"peers\"?"},
		{"streams = 3", `line 1: unknown key "streams"; did you mean "tcp.streams"?`},
		{"offers = { default_leese = \"1s\" }\ntcp = { sstreams = 3 }", "line 1: unknown key \"default_leese\"; did you mean \"offers.default_lease\"?\nline 2: unknown key \"sstreams\"; did you mean \"tcp.streams\"?"},
		{"[tcpp]\nstreams = 3", `line 1: unknown key "tcpp"; did you mean "tcp"?`},
		{"[advance]\nspin = \"1us\"", `line 1: unknown key "advance"; did you mean "advanced"?`},
		{"\"tcp.streams\" = 3", `line 1: unknown key "tcp.streams": quotes make one word of it; write it without them`},
		{"[\"peers.nodes\"]\na = \"h:1\"", `line 1: unknown key "peers.nodes": quotes make one word of it; write it without them`},
		{"zzzzz = 1", `line 1: unknown key "zzzzz"; the sample kvpiped.toml lists all keys`},
		{"[nothing.like.it]\nx = 1", `line 1: unknown key "nothing.like.it"; the sample kvpiped.toml lists all keys`},
		{"[peers]\nheartbeat = 5", `line 2: peers.heartbeat: a whole number where a duration in quotes, such as "250ms", "30s" or "10m", belongs`},
		{"peers = { heartbeat = 5 }", `line 1: peers.heartbeat: a whole number where a duration in quotes, such as "250ms", "30s" or "10m", belongs`},
		{"peers.heartbeat = true", `line 1: peers.heartbeat: true or false where a duration in quotes, such as "250ms", "30s" or "10m", belongs`},
		{"[peers]\nheartbeat = \"5\"", `line 2: peers.heartbeat: "5" is not a duration: write a number with a unit, such as "250ms", "30s" or "10m"`},
		{"[peers]\nheartbeat = \"-5s\"", `line 2: peers.heartbeat: "-5s" is not a duration: write a number with a unit, such as "250ms", "30s" or "10m"`},
		{"[limits]\nsession_pinned = 1024", `line 2: limits.session_pinned: a whole number where a size in quotes, such as "64KiB", "512MiB" or "1TiB", belongs`},
		{"[limits]\nsession_pinned = \"1.5GiB\"", `line 2: limits.session_pinned: "1.5GiB" is not a size: write a number with a unit, such as "64KiB", "512MiB" or "1TiB"`},
		{"[limits]\nsession_pinned = \"16777216TiB\"", `line 2: limits.session_pinned: "16777216TiB" is not a size: write a number with a unit, such as "64KiB", "512MiB" or "1TiB"`},
		{"[limits]\nsession_pinned = \"1 GB\"", `line 2: limits.session_pinned: "1 GB" is not a size: write a number with a unit, such as "64KiB", "512MiB" or "1TiB"`},
		{"insecure = \"yes\"", `line 1: insecure: a text in quotes where true or false belongs`},
		{"[tcp]\nstreams = \"2\"", `line 2: tcp.streams: a text in quotes where a whole number belongs`},
		{"[tcp]\nstreams = 1.5", `line 2: tcp.streams: a number with a point where a whole number belongs`},
		{"[tcp]\nstreams = 9223372036854775808", `line 2: tcp.streams: decimal number is too large to fit in a 64-bit signed integer`},
		{"transports = \"tcp\"", `line 1: transports: a text in quotes where a list of texts, such as ["a", "b"], belongs`},
		{"transports = [\"tcp\", 1]", `line 1: transports: a list where a list of texts, such as ["a", "b"], belongs`},
		{"[peers.nodes]\nb = 7650", `line 2: peers.nodes.b: a whole number where a text in quotes belongs`},
		{"[peers.nodes]\nb.example = \"h:1\"", `line 2: peers.nodes: put a name with dots in quotes: "b.example"`},
		{"[peers]\nnodes.b.example.org = \"h:1\"", `line 2: peers.nodes: put a name with dots in quotes: "b.example.org"`},
		{"peers = { nodes = { b.example = \"h:1\" } }", `line 1: peers.nodes: put a name with dots in quotes: "b.example"`},
		{"[peers.nodes.\"b.example\"]", `line 1: peers.nodes.b.example: a table where a text in quotes belongs`},
		{"[peers.nodes.b]\naddress = \"h:1\"", `line 1: peers.nodes.b: a table where a text in quotes belongs`},
		{"[peers.nodes]\nb = { port = 7650 }", `line 2: peers.nodes.b: a table where a text in quotes belongs`},
		{"[peers.nodes]\n\"b.example\" = {}", `line 2: peers.nodes.b.example: a table where a text in quotes belongs`},
		{"peers = { nodes = { b = { address = \"h:1\" } } }", `line 1: peers.nodes.b: a table where a text in quotes belongs`},
		{"peers = 3", `line 1: peers: a whole number where a table belongs`},
		{"log.level = 3", `line 1: log.level: a whole number where a text in quotes belongs`},
		{"[tcp.streams]", `line 1: tcp.streams: a table where a whole number belongs`},
		{"[tcp.streams.x]", `line 1: tcp.streams: a table where a whole number belongs`},
		{"tcp.streams.x = 1", `line 1: tcp.streams: a table where a whole number belongs`},
		{"tcp = { streams = { x = 1 } }", `line 1: tcp.streams: a table where a whole number belongs`},
		{"[log]\nlevel = {}", `line 2: log.level: a table where a text in quotes belongs`},
		{"node = 2026-01-01", `line 1: node: a date where a text in quotes belongs`},
		{"[[peers]]", `line 1: [[peers]]: no key takes a list of tables`},
		{"[tcp]\nstreams = 1\nstreams = 2", `line 3: streams: key streams is already defined`},
		{"node = \"a", `line 1, column 9: a quote is not closed (unterminated basic string)`},
		{"node = \"a\nlisten = \"off\"", `line 1, column 10: a quote is not closed (basic strings cannot have new lines)`},
		{"node = 'a\nlisten = 'off'", `line 1, column 10: a quote is not closed (literal strings cannot have new lines)`},
		{"x = [", `line 1, column 5: array is incomplete`},
	} {
		_, err := Parse([]byte(c.doc))
		if err == nil {
			t.Errorf("%q is accepted, want %s", c.doc, c.want)
		} else if err.Error() != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.doc, err, c.want)
		}
	}
}

// TestKeysBelowAValue: a key below one that holds a plain value is an error with its line, and no panic: a running daemon reads the file again
// on reload.
func TestKeysBelowAValue(t *testing.T) {
	for _, doc := range []string{"[node]\nx = 1", "node.x = 1", "[tcp.streams.x]\ny = 1"} {
		if _, err := Parse([]byte(doc)); err == nil || !strings.HasPrefix(err.Error(), "line 1: ") {
			t.Errorf("%q: %v", doc, err)
		}
	}
}

func TestParseKeepsDefaults(t *testing.T) {
	c, err := Parse([]byte("node = \"a\"\n[peers]\nheartbeat = \"250ms\"\n[peers.nodes]\n\"b.example\" = \"10.0.0.2:7650\"\n[limits]\nsession_pinned = \"512 MiB\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	d := Default()
	if c.Node != "a" || c.Peers.Heartbeat.D() != 250*time.Millisecond || c.Limits.SessionPinned != 512<<20 || c.Peers.Nodes["b.example"] != "10.0.0.2:7650" {
		t.Errorf("what the file says is not there: %+v", c)
	}
	if c.Peers.IdleClose != d.Peers.IdleClose || c.Limits.Sessions != d.Limits.Sessions || c.Socket != d.Socket {
		t.Errorf("what the file leaves out has changed: %+v", c)
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none.toml")); !os.IsNotExist(unwrapAll(err)) {
		t.Errorf("a file that is not there: %v", err)
	}
	file := filepath.Join(dir, "bad.toml")
	if err := os.WriteFile(file, []byte("nod = 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.HasPrefix(err.Error(), file+": line 1: ") {
		t.Errorf("a bad file: %v", err)
	}
}

func unwrapAll(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok || u.Unwrap() == nil {
			return err
		}
		err = u.Unwrap()
	}
}

func TestValuesSurviveWriting(t *testing.T) {
	for _, s := range []Size{0, 1, 1023, 1024, 1536, 1 << 20, 3 << 30, 1 << 40, 5 << 50, ^Size(0)} {
		b, _ := s.MarshalText()
		var back Size
		if err := back.UnmarshalText(b); err != nil || back != s {
			t.Errorf("%d is written %q and read %d (%v)", uint64(s), b, uint64(back), err)
		}
	}
	for _, d := range []time.Duration{0, 1, time.Microsecond, 90 * time.Second, 36 * time.Hour} {
		b, _ := Duration(d).MarshalText()
		var back Duration
		if err := back.UnmarshalText(b); err != nil || back.D() != d {
			t.Errorf("%s is written %q and read %s (%v)", d, b, back, err)
		}
	}
}

// TestLoadEndless: what is no configuration is not read to its end.
func TestLoadEndless(t *testing.T) {
	if _, err := Load("/dev/zero"); err == nil || !strings.Contains(err.Error(), "/dev/zero has more than 4194304 bytes") {
		t.Errorf("%v", err)
	}
}

// TestKeysHaveACase: the decoder would take either spelling, and of both the last.
func TestKeysHaveACase(t *testing.T) {
	for doc, want := range map[string]string{
		"[limits]\nsessions = 5\nSessions = 7\n":           `line 3: unknown key "limits.Sessions"; did you mean "limits.sessions"?`,
		"[limits]\nsessions = 5\n[Limits]\nsessions = 9\n": `line 3: unknown key "Limits"; did you mean "limits"?`,
		"insecure = false\nInsecure = true\n":              `line 2: unknown key "Insecure"; did you mean "insecure"?`,
		"Peers = { heartbeat = \"1s\" }\n":                 `line 1: unknown key "Peers"; did you mean "peers"?`,
		"peers.Nodes.a = \"h:1\"\n":                        `line 1: unknown key "peers.Nodes.a"; did you mean "peers.nodes.a"?`,
	} {
		if _, err := Parse([]byte(doc)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", doc, err, want)
		}
	}
	if c, err := Parse([]byte("[peers.nodes]\nPEERS = \"h:1\"\nListen = \"h:2\"\n")); err != nil || len(c.Peers.Nodes) != 2 {
		t.Errorf("names of nodes are as they are: %v, %v", c.Peers.Nodes, err)
	}
}
