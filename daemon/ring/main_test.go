package ring

import (
	"os"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(childMain())
	}
	leak.Main(m)
}

// pair is both ends of rings on heap memory, where the race detector sees every access.
type pair struct {
	g      Geometry
	c, d   []byte
	sq     *Submissions
	cq     *Completions
	words  *Words
	layers *Layers
	client *Client
}

func newPair(t testing.TB, s Sizes) *pair {
	t.Helper()
	g, err := NewGeometry(s)
	noErr(t, err)
	return onMemory(t, g, make([]byte, g.CBytes), make([]byte, g.DBytes))
}

func onMemory(t testing.TB, g Geometry, c, d []byte) *pair {
	t.Helper()
	p := &pair{g: g, c: c, d: d}
	p.sq, p.cq = NewSubmissions(&p.g, c, d), NewCompletions(&p.g, c, d)
	p.words, p.layers = NewWords(c, d), NewLayers(&p.g, d)
	var err error
	p.client, err = NewClient(g.Table(), c, d)
	noErr(t, err)
	return p
}

var small = Sizes{SQ: 8, CQ: 8, Records: 4096, Layers: 4}

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
