package local

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/place/placetest"
	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
)

// TestWorkersAreNear: whether there is a worker for each node or one for all.
func TestWorkersAreNear(t *testing.T) {
	for _, workers := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			m := placetest.New(t)
			transporttest.Near(t, m, opener(Config{Workers: workers, Nice: 10, Places: m.Places})(t), false)
		})
	}
}

// TestConformanceOnTwoNodes: whatever goes wrong, it does so there, too.
func TestConformanceOnTwoNodes(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
		return opener(Config{Workers: 2, Nice: 10, Places: placetest.New(t).Scattered()})(t)
	})
}
