package transfer

// What has ended may be remembered for long, as long as a peer has not answered. Its block ids are not counted any
// more. So it must not keep them, nor anything that is as long as they are.

// shrink reduces a take to what its producer has to hear, and how much was moved.
func (t *take) shrink() {
	var all receiving
	for _, seg := range t.segs {
		if seg != nil {
			t.transport = seg.grant.Transport
			all.slices += seg.slices
			all.count += seg.count
			all.bytes += seg.bytes
		}
	}
	t.seg0, t.segs1 = all, [1]*receiving{&t.seg0}
	t.segs = t.segs1[:min(len(t.segs), 1)]
	t.covered, t.missing, t.aside, t.failed, t.layers, t.said = nil, nil, nil, nil, nil, ""
	t.in.Blocks, t.held1 = nil, [1]hold{}
	if t.get != nil {
		t.get.in.Blocks, t.get.in.Tokens = nil, nil
	}
}

// shrink reduces an offer's operation to how it ended.
func (mb *member) shrink() {
	mb.segs, mb.segs1, mb.held1 = nil, [1]portion{}, [1]hold{}
}
