package layout

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
)

// New validates views and fingerprint fields and makes a layout of copies of them. size returns a region's bytes and
// whether the region exists; nil skips that check (layouts of peers, whose regions are not here). Opaque views
// without heads (0 of 0) become 1 of 1. Errors name the view's index in views, the field, its value and the limit.
func New(views []View, fp []Field, size func(RegionID) (uint64, bool)) (*Layout, error) {
	if len(views) == 0 || len(views) > MaxViews {
		return nil, fmt.Errorf("layout: %d views; must be 1 to %d", len(views), MaxViews)
	}
	l := &Layout{views: slices.Clone(views)}
	for i := range l.views {
		v := &l.views[i]
		if v.Kind == Opaque && v.FirstHead == 0 && v.Heads == 0 && v.TotalHeads == 0 {
			v.Heads, v.TotalHeads = 1, 1
		}
		if err := v.check(size); err != nil {
			return nil, fmt.Errorf("layout: view %d (layer %d part %q): %w", i, v.Layer, v.Part, err)
		}
	}
	var err error
	if l.fingerprint, err = checkFields(fp); err != nil {
		return nil, err
	}
	index := l.sortViews()
	if err := l.makeGroups(index); err != nil {
		return nil, err
	}
	l.findShared()
	pieces, err := l.pieces(index)
	if err == nil {
		err = l.makeDomains(index, pieces, size != nil) // a peer's daemon, which may be older, has judged its own layout
	}
	if err != nil {
		return nil, err
	}
	if size != nil {
		l.cuts = pieces
	}
	for i := range l.views {
		l.layers = append(l.layers, l.views[i].Layer)
	}
	slices.Sort(l.layers)
	l.layers = slices.Compact(l.layers)
	form := l.Encode()
	l.digest, l.encoded = sha256.Sum256(form), len(form)
	l.fields = sha256.Sum256(l.appendFields(nil))
	return l, nil
}

// sortViews brings the views into canonical order. It returns the index that each had before.
func (l *Layout) sortViews() []int {
	index := make([]int, len(l.views))
	for i := range index {
		index[i] = i
	}
	given := slices.Clone(l.views)
	slices.SortStableFunc(index, func(a, b int) int { return compareViews(&given[a], &given[b]) })
	for i, from := range index {
		l.views[i] = given[from]
	}
	return index
}

func compareViews(a, b *View) int {
	if c := cmp.Compare(a.Group, b.Group); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Layer, b.Layer); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Part, b.Part); c != 0 {
		return c
	}
	return cmp.Compare(a.FirstHead, b.FirstHead)
}

// makeGroups finds the groups in the sorted views and checks that the views of each group have the same blocks.
func (l *Layout) makeGroups(index []int) error {
	for i := range l.views {
		v := &l.views[i]
		if i == 0 || l.views[i-1].Group != v.Group {
			l.groups = append(l.groups, Group{ID: v.Group, Kind: v.Kind, BlockSize: v.BlockSize, NumBlocks: v.NumBlocks, Views: l.views[i : i+1]})
			continue
		}
		g := &l.groups[len(l.groups)-1]
		first := i - len(g.Views)
		if err := g.agrees(v); err != nil {
			return fmt.Errorf("layout: views %d and %d are both of group %d: %w", index[first], index[i], g.ID, err)
		}
		if p := &l.views[i-1]; p.Layer == v.Layer && p.Part == v.Part && v.FirstHead < p.FirstHead+p.Heads {
			return fmt.Errorf("layout: views %d and %d both hold head %d of layer %d part %q in group %d; give each head once",
				index[i-1], index[i], v.FirstHead, v.Layer, v.Part, g.ID)
		}
		g.Views = l.views[first : i+1]
	}
	return nil
}

func (g *Group) agrees(v *View) error {
	switch {
	case g.Kind != v.Kind:
		return fmt.Errorf("kind %d and %d; must be equal", g.Kind, v.Kind)
	case g.BlockSize != v.BlockSize:
		return fmt.Errorf("block_size %d and %d; must be equal", g.BlockSize, v.BlockSize)
	case g.NumBlocks != v.NumBlocks:
		return fmt.Errorf("num_blocks %d and %d; must be equal", g.NumBlocks, v.NumBlocks)
	}
	return nil
}
