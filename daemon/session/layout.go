package session

import (
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// assembly is a layout that arrives in pieces. It belongs to the control goroutine.
type assembly struct {
	total  uint32
	views  []layout.View
	fields []layout.Field
	begun  bool
}

// takeLayout takes one piece and reports the layout after the last. An error discards all pieces. The session's layout
// may be set again to the same one: a client that was not answered in time does not know that it is set.
func (s *session) takeLayout(body []byte) error {
	if s.who.Role == transfer.Scheduler {
		return invalid("layout: a scheduler owns no blocks: its workers set layouts")
	}
	commit, err := s.coming.add(body)
	if err == nil && !commit {
		return nil
	}
	got := s.coming
	s.coming = assembly{}
	if err != nil {
		return err
	}
	if id, ok := s.beingUnregistered(got.views); ok {
		return invalid("layout: region %#x is being unregistered: name memory that stays", uint64(id))
	}
	l, err := layout.New(got.views, got.fields, s.mem.Size)
	switch {
	case err != nil:
		return invalid("%v", err)
	case s.layout == nil:
	case slices.Equal(l.Views(), s.layout.Views()) && slices.Equal(l.Fingerprint(), s.layout.Fingerprint()):
		return nil
	default:
		return invalid("layout: the session has another one already: it is set once")
	}
	s.layout = l
	s.srv.state.hasLayout(s.id)
	s.srv.saveState()
	s.srv.cfg.Events(transfer.LayoutSet{Session: s.id, Layout: l})
	s.log.Debug("layout set", "views", len(l.Views()), "fingerprint", len(l.Fingerprint()))
	return nil
}

// beingUnregistered finds a region of the views that is being unregistered. It is mapped still, but the machine was asked to let go
// of it, and has done so at once if no layout named it: what a layout lets into it now, nobody would fence.
func (s *session) beingUnregistered(views []layout.View) (id layout.RegionID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range views {
		if r := s.removals[v.Region]; r != nil && !r.stays {
			return v.Region, true
		}
	}
	return 0, false
}

// add decodes one piece.
func (a *assembly) add(body []byte) (commit bool, err error) {
	var m ring.LayoutMsg
	rest, err := ring.Decode(body, &m, "layout")
	if err != nil {
		return false, invalid("%v", err)
	}
	switch {
	case m.Flags&^ring.LayoutCommit != 0:
		return false, invalid("layout: flags are %#x: known are %#x", m.Flags, ring.LayoutCommit)
	case m.TotalViews == 0 || m.TotalViews > layout.MaxViews:
		return false, invalid("layout: total_views is %d: must be 1 to %d", m.TotalViews, layout.MaxViews)
	case a.begun && m.TotalViews != a.total:
		return false, invalid("layout: total_views is %d, it was %d in the message before", m.TotalViews, a.total)
	case uint64(m.NViews) > uint64(m.TotalViews)-uint64(len(a.views)):
		return false, invalid("layout: %d views after %d are more than total_views = %d", m.NViews, len(a.views), m.TotalViews)
	case uint64(m.NFields)+uint64(len(a.fields)) > layout.MaxFingerprint:
		return false, invalid("layout: %d fingerprint fields after %d: the limit is %d", m.NFields, len(a.fields), layout.MaxFingerprint)
	}
	a.begun, a.total = true, m.TotalViews
	for range m.NViews {
		var v ring.View
		if rest, err = ring.Decode(rest, &v, "view"); err != nil {
			return false, invalid("layout: view %d: %v", len(a.views), err)
		}
		part, err := ring.String(v.Part[:], "part")
		if err != nil {
			return false, invalid("layout: view %d: %v", len(a.views), err)
		}
		a.views = append(a.views, layout.View{
			Region: layout.RegionID(v.Region), Base: v.Base, NumBlocks: v.NumBlocks, BlockStride: v.BlockStride,
			TokenStride: v.TokenStride, HeadStride: v.HeadStride, ContentBytes: v.ContentBytes, Layer: v.Layer, Group: v.Group,
			Kind: layout.Kind(v.Kind), BlockSize: v.BlockSize, FirstHead: v.FirstHead, Heads: v.Heads, TotalHeads: v.TotalHeads, Part: part,
		})
	}
	for range m.NFields {
		var f layout.Field
		if f, rest, err = decodeField(rest); err != nil {
			return false, invalid("layout: fingerprint field %d: %v", len(a.fields), err)
		}
		a.fields = append(a.fields, f)
	}
	if len(rest) != 0 {
		return false, invalid("layout: %d bytes too many", len(rest))
	}
	commit = m.Flags&ring.LayoutCommit != 0
	if commit && uint32(len(a.views)) != a.total {
		return false, invalid("layout: committed with %d of %d views", len(a.views), a.total)
	}
	return commit, nil
}

func decodeField(b []byte) (f layout.Field, rest []byte, err error) {
	if len(b) < 4 {
		return f, nil, invalid("%d bytes are left, its lengths have 4", len(b))
	}
	k, v := int(le.Uint16(b)), int(le.Uint16(b[2:]))
	if b = b[4:]; k == 0 || k > layout.MaxFieldKey || v > layout.MaxFieldValue || k+v > len(b) {
		return f, nil, invalid("key of %d and value of %d bytes: must be 1 to %d and at most %d, and %d bytes are left", k, v, layout.MaxFieldKey, layout.MaxFieldValue, len(b))
	}
	key, value := b[:k], b[k:k+v]
	if err := ring.CheckText(key, "key"); err != nil {
		return f, nil, err
	}
	if err := ring.CheckText(value, "value"); err != nil {
		return f, nil, err
	}
	return layout.Field{Key: string(key), Value: string(value)}, b[k+v:], nil
}
