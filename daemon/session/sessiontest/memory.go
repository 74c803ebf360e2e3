package sessiontest

import (
	"encoding/binary"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Alloc makes n bytes of shared memory, maps and registers them. They stay mapped here until the session is closed.
func (c *Client) Alloc(n int) (region layout.RegionID, mem []byte, err error) {
	fd, err := sys.MemfdCreate("sessiontest", int64(n), sys.MemfdOptions{Prefault: true, Seals: sys.SealSize})
	if err != nil {
		return 0, nil, err
	}
	defer sys.Close(fd)
	if mem, err = sys.Mmap(fd, n, sys.ProtWrite); err != nil {
		return 0, nil, err
	}
	c.mapped = append(c.mapped, mem)
	region, err = c.Register(fd, uint64(n))
	return region, mem, err
}

// Register registers the first n bytes of fd.
func (c *Client) Register(fd int, n uint64) (layout.RegionID, error) {
	v, err := c.Request(ring.CtlRegister, ring.Append(nil, &ring.Register{Bytes: n, Kind: ring.RegisterMemfd}), fd)
	return layout.RegionID(v), err
}

// Unregister takes a region away from the daemon. A timeout of 0 is the daemon's default.
func (c *Client) Unregister(region layout.RegionID, timeout time.Duration) error {
	_, err := c.Request(ring.CtlUnregister, ring.Append(nil, &ring.Unregister{Region: uint64(region), TimeoutNS: uint64(timeout)}))
	return err
}

// Invalidate has the daemon give up a region's memory but keep its name. A timeout of 0 is the daemon's default.
func (c *Client) Invalidate(region layout.RegionID, timeout time.Duration) error {
	_, err := c.Request(ring.CtlInvalidate, ring.Append(nil, &ring.Unregister{Region: uint64(region), TimeoutNS: uint64(timeout)}))
	return err
}

// Revalidate gives an invalid region the memory of fd.
func (c *Client) Revalidate(region layout.RegionID, fd int) error {
	_, err := c.Request(ring.CtlRevalidate, ring.Append(nil, &ring.Revalidate{Region: uint64(region)}), fd)
	return err
}

// SetLayout sets the session's layout, in messages of at most perMessage views (0: as many as fit).
func (c *Client) SetLayout(views []layout.View, fields []layout.Field, perMessage int) error {
	const fit = (ring.CtlMax - 32) / ring.ViewSize / 2 // leaves half for fields
	if perMessage <= 0 || perMessage > fit {
		perMessage = fit
	}
	total := uint32(len(views))
	for {
		n := min(perMessage, len(views))
		m := ring.LayoutMsg{NViews: uint32(n), TotalViews: total}
		last := n == len(views)
		if last {
			m.Flags, m.NFields = ring.LayoutCommit, uint32(len(fields))
		}
		b := ring.Append(nil, &m)
		for i := range views[:n] {
			b = ring.Append(b, WireView(&views[i]))
		}
		if last {
			b = AppendFields(b, fields)
		}
		if _, err := c.Request(ring.CtlLayout, b); err != nil || last {
			return err
		}
		views = views[n:]
	}
}

// WireView returns a view in its wire form.
func WireView(v *layout.View) *ring.View {
	w := &ring.View{
		Region: uint64(v.Region), Base: v.Base, NumBlocks: v.NumBlocks, BlockStride: v.BlockStride, TokenStride: v.TokenStride,
		HeadStride: v.HeadStride, ContentBytes: v.ContentBytes, Layer: v.Layer, Group: v.Group, Kind: uint32(v.Kind),
		BlockSize: v.BlockSize, FirstHead: v.FirstHead, Heads: v.Heads, TotalHeads: v.TotalHeads,
	}
	copy(w.Part[:], v.Part)
	return w
}

// AppendFields appends fingerprint fields in their wire form.
func AppendFields(b []byte, fields []layout.Field) []byte {
	for _, f := range fields {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(f.Key)))
		b = binary.LittleEndian.AppendUint16(b, uint16(len(f.Value)))
		b = append(append(b, f.Key...), f.Value...)
	}
	return b
}
