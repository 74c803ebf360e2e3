package house

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
)

// frameKinds are what a frame between daemons can carry.
func frameKinds() protoreflect.FieldDescriptors {
	return new(peerpb.Frame).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
}

// peerKinds are their names, as the golden file of daemon/peer has them.
func peerKinds() (names []string) {
	for i := range frameKinds().Len() {
		names = append(names, string(frameKinds().Get(i).Name()))
	}
	return names
}

// TestProtocolMessages: every message between daemons has a table with all its fields, as peer.proto numbers them.
func TestProtocolMessages(t *testing.T) {
	seen := map[string][]string{}
	lead := regexp.MustCompile("`message ([A-Z][A-Za-z]+)`")
	for _, tab := range tables(t) {
		name := lead.FindStringSubmatch(tab.lead)
		if name == nil || !tab.headed("no.", "type", "field", "meaning") {
			continue
		}
		for _, row := range tab.rows[1:] {
			seen[name[1]] = append(seen[name[1]], strings.Join(row[:3], " "))
		}
	}
	messages := peerpb.File_peer_proto.Messages()
	for i := range messages.Len() {
		message := messages.Get(i)
		if message.Name() == "Frame" {
			continue
		}
		var want []string
		for j := range message.Fields().Len() {
			want = append(want, describe(message.Fields().Get(j)))
		}
		if got := seen[string(message.Name())]; !slices.Equal(got, want) {
			t.Errorf("message %s: the page has\n%q, peer.proto\n%q", message.Name(), got, want)
		}
		delete(seen, string(message.Name()))
	}
	for name := range seen {
		t.Errorf("message %s is not in peer.proto", name)
	}
}

// TestProtocolKinds: the page's list of frames is peer.proto's.
func TestProtocolKinds(t *testing.T) {
	var got, want []string
	for _, tab := range tables(t) {
		if !tab.headed("no.", "message", "from", "says") {
			continue
		}
		for _, row := range tab.rows[1:] {
			got = append(got, row[0]+" "+row[1])
		}
	}
	for i := range frameKinds().Len() {
		want = append(want, strconv.Itoa(int(frameKinds().Get(i).Number()))+" "+string(frameKinds().Get(i).Message().Name()))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has\n%q, peer.proto\n%q", got, want)
	}
}

func describe(f protoreflect.FieldDescriptor) string {
	kind := f.Kind().String()
	if f.Message() != nil {
		kind = string(f.Message().Name())
	}
	if f.IsList() {
		kind = "repeated " + kind
	}
	return strconv.Itoa(int(f.Number())) + " " + kind + " " + string(f.Name())
}
