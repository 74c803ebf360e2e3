package layout

import (
	"fmt"
	"math/bits"
)

// maxOffset bounds every offset of a layout, so that the sum of two never overflows.
const maxOffset = 1 << 62

// check says what is wrong with the view on its own.
func (v *View) check(size func(RegionID) (uint64, bool)) error {
	switch {
	case v.Region == 0:
		return fmt.Errorf("region 0; must be a registered region")
	case v.Kind != Paged && v.Kind != Opaque:
		return fmt.Errorf("kind %d; must be %d (paged) or %d (opaque)", v.Kind, Paged, Opaque)
	case v.Group >= MaxGroups:
		return fmt.Errorf("group %d; must be below %d", v.Group, MaxGroups)
	case v.NumBlocks == 0 || v.NumBlocks > MaxBlocks:
		return fmt.Errorf("num_blocks %d; must be 1 to %d", v.NumBlocks, MaxBlocks)
	case v.Kind == Paged && v.BlockSize == 0, v.BlockSize > MaxBlockSize:
		return fmt.Errorf("block_size %d tokens; must be 1 to %d", v.BlockSize, MaxBlockSize)
	case v.TotalHeads == 0 || v.TotalHeads > MaxHeads:
		return fmt.Errorf("total_heads %d; must be 1 to %d", v.TotalHeads, MaxHeads)
	case v.Heads == 0 || uint64(v.FirstHead)+uint64(v.Heads) > uint64(v.TotalHeads):
		return fmt.Errorf("heads %d from first_head %d; must be at least 1 and within total_heads %d", v.Heads, v.FirstHead, v.TotalHeads)
	case v.ContentBytes == 0:
		return fmt.Errorf("content_bytes 0; must be at least 1")
	case v.Kind == Opaque && (v.TokenStride != 0 || v.HeadStride != 0):
		return fmt.Errorf("strides (%d, %d); must be 0 for an opaque view", v.TokenStride, v.HeadStride)
	}
	if err := checkPart(v.Part); err != nil {
		return err
	}
	extent, err := v.extent()
	if err != nil {
		return err
	}
	end, carry := bits.Add64(v.Base, extent, 0)
	if carry != 0 || end > maxOffset {
		return fmt.Errorf("base %d and %d bytes end past the largest offset %d", v.Base, extent, uint64(maxOffset))
	}
	if size == nil {
		return nil
	}
	have, ok := size(v.Region)
	if !ok {
		return fmt.Errorf("region %#x is not registered in this session", uint64(v.Region))
	}
	if end > have {
		return fmt.Errorf("base %d and num_blocks %d of block_stride %d end at byte %d; region %#x has %d bytes",
			v.Base, v.NumBlocks, v.BlockStride, end, uint64(v.Region), have)
	}
	return nil
}

func checkPart(part string) error {
	if part == "" || len(part) > MaxPart {
		return fmt.Errorf("part of %d bytes; must be 1 to %d", len(part), MaxPart)
	}
	for i := range len(part) {
		if part[i] <= ' ' || part[i] > '~' {
			return fmt.Errorf("part %q; must be printable ASCII without spaces", part)
		}
	}
	return nil
}

// dim is one of the dimensions over which a view's elements are spread.
type dim struct {
	name   string
	count  uint64
	stride uint64
}

// dims returns the dimensions with more than one place, in ascending order of strides.
func (v *View) dims() (d [3]dim, n int) {
	all := [3]dim{{"block_stride", v.NumBlocks, v.BlockStride}, {"token_stride", uint64(v.BlockSize), v.TokenStride}, {"head_stride", uint64(v.Heads), v.HeadStride}}
	if v.Kind == Opaque {
		all[1].count, all[2].count = 1, 1
	}
	for _, x := range all {
		if x.count < 2 {
			continue
		}
		i := n
		for ; i > 0 && d[i-1].stride > x.stride; i-- {
			d[i] = d[i-1]
		}
		d[i] = x
		n++
	}
	return d, n
}

// extent returns how many bytes the view spans from its first to its last. Each stride must step over everything that
// the smaller strides reach; then no element overlaps another.
func (v *View) extent() (uint64, error) {
	extent := v.ContentBytes
	d, n := v.dims()
	for _, x := range d[:n] {
		if x.stride < extent {
			return 0, fmt.Errorf("%s %d; must be at least the %d bytes that it steps over, or elements overlap", x.name, x.stride, extent)
		}
		hi, lo := bits.Mul64(x.count-1, x.stride)
		sum, carry := bits.Add64(lo, extent, 0)
		if hi != 0 || carry != 0 || sum > maxOffset {
			return 0, fmt.Errorf("%s %d times %d ends past the largest offset %d", x.name, x.stride, x.count, uint64(maxOffset))
		}
		extent = sum
	}
	if extent > maxOffset {
		return 0, fmt.Errorf("content_bytes %d; must be at most %d", v.ContentBytes, uint64(maxOffset))
	}
	return extent, nil
}
