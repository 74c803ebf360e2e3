package chaos

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// wire is a network of two namespaces, one for each daemon, and what happens to the packets between them.
type wire struct {
	t     *testing.T
	names [2]string // of the namespaces
}

// addrs are where each node listens, on its end of the wire.
var addrs = [2]string{"10.76.0.1", "10.76.0.2"}

func newWire(t *testing.T, name string) *wire {
	t.Helper()
	w := &wire{t: t, names: [2]string{name + "-0", name + "-1"}}
	for _, n := range w.names {
		w.run("", "ip", "netns", "add", n)
		t.Cleanup(func() { w.run("", "ip", "netns", "del", n) })
	}
	w.run("", "ip", "link", "add", "kv", "netns", w.names[0], "type", "veth", "peer", "kv", "netns", w.names[1])
	for i, n := range w.names {
		w.run("", "ip", "-n", n, "addr", "add", addrs[i]+"/24", "dev", "kv")
		w.run("", "ip", "-n", n, "link", "set", "lo", "up")
		w.run("", "ip", "-n", n, "link", "set", "kv", "up")
	}
	return w
}

func (w *wire) run(input string, command ...string) string {
	w.t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%q: %v: %s\n%s", command, err, out, input)
	}
	return string(out)
}

// trouble is what rules of nftables do to packets: to those that come to the first daemon, and to those that leave it.
type trouble struct{ name, in, out string }

const (
	lost       = "counter drop"
	sometimes  = "numgen random mod 100 < %d " + lost
	refused    = "meta l4proto tcp counter reject with tcp reset"
	some       = "numgen random mod 50 == 0 "
	connecting = "tcp flags & (syn | ack) == syn "
)

var troubles = []trouble{
	{"nothing passes", lost, lost},
	{"nothing comes to the producer", lost, ""},
	{"nothing leaves the producer", "", lost},
	{"one packet of a hundred is lost", fmt.Sprintf(sometimes, 1), fmt.Sprintf(sometimes, 1)},
	{"one packet of ten is lost", fmt.Sprintf(sometimes, 10), fmt.Sprintf(sometimes, 10)},
	{"every other packet is lost", fmt.Sprintf(sometimes, 50), fmt.Sprintf(sometimes, 50)},
	{"connections are reset", refused, refused},
	{"some packets reset their connection", some + refused, ""},
	// Heartbeats pass, so the channel lives and no bytes move.
	{"large packets are lost", "", "meta length > 1000 " + lost},
	// Some connections stand still and nobody tells their ends.
	{
		"half of the connections are dead, others are reset", "jhash tcp sport mod 2 seed 0x7 == 0 " + lost + "\n" + some + refused,
		"jhash tcp dport mod 2 seed 0x7 == 0 " + lost,
	},
	{"connections are reset and nobody connects", connecting + lost + "\n" + some + refused, connecting + lost},
}

// suffer makes tr happen from now on.
func (w *wire) suffer(tr trouble) {
	w.t.Helper()
	w.rules("table inet trouble {\n" +
		"chain in {\n type filter hook input priority 0\n" + tr.in + "\n}\n" +
		"chain out {\n type filter hook output priority 0\n" + tr.out + "\n}\n}\n")
}

// suffered is how many packets the rules at hand have met with.
func (w *wire) suffered() (sum int) {
	w.t.Helper()
	out := w.run("", "ip", "netns", "exec", w.names[0], "nft", "list", "ruleset")
	for _, m := range regexp.MustCompile(`counter packets (\d+)`).FindAllStringSubmatch(out, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			w.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// heal lets everything pass again.
func (w *wire) heal() {
	w.t.Helper()
	w.rules("")
}

// rules replaces all there are in one step.
func (w *wire) rules(text string) {
	w.t.Helper()
	w.run("flush ruleset\n"+text, "ip", "netns", "exec", w.names[0], "nft", "-f", "-")
}
