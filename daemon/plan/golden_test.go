package plan_test

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/plan"
)

// The scripts in testdata say in words what ranks hold and which blocks they give, and pin the runs that follow:
//
//	rank producer=0
//	view layers=0-3 apart=64 blocks=8 stride=256 tokens=4 heads=0-2/2 strides=16,8 content=8 [part= group= region= base= opaque]
//	blocks group=0 tokens=0+8 ids=3,4,-
//
//	plan [slice=N] [layered] [whole] [samenode]
//
// The other daemon plans by itself: a script that comes to have other runs is another version of the peer protocol, or an older daemon puts the
// bytes elsewhere. Scripts may be added, and may come to be refused.
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var req plan.Request
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "reset":
				req = plan.Request{}
				return ""
			case "rank":
				side := &req.Producer
				if d.CmdArgs[0].Key == "consumer" {
					side = &req.Consumer
				}
				return addRank(t, d, side)
			case "plan":
				r := req
				r.Layered, r.Whole, r.SameNode = d.HasArg("layered"), d.HasArg("whole"), d.HasArg("samenode")
				r.SameSession = func(src, dst uint32) bool { return src == dst }
				if d.HasArg("slice") {
					d.ScanArgs(t, "slice", &r.SliceBytes)
				}
				return describe(r)
			}
			d.Fatalf(t, "command %s is not known", d.Cmd)
			return ""
		})
	})
}

func addRank(t *testing.T, d *datadriven.TestData, side *[]plan.Rank) string {
	r := plan.Rank{Rank: uint32(number(t, d, d.CmdArgs[0].Vals[0]))}
	var views []layout.View
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		words := strings.Fields(line)
		args := map[string]string{}
		for _, w := range words[1:] {
			key, val, _ := strings.Cut(w, "=")
			args[key] = val
		}
		if words[0] == "blocks" {
			r.Blocks = append(r.Blocks, parseBlocks(t, d, args))
			continue
		}
		views = append(views, parseViews(t, d, args)...)
	}
	l, err := layout.New(views, nil, nil)
	if err != nil {
		return err.Error()
	}
	r.Layout = l
	*side = append(*side, r)
	return ""
}

func parseBlocks(t *testing.T, d *datadriven.TestData, args map[string]string) layout.BlockList {
	b := layout.BlockList{Group: uint32(number(t, d, args["group"]))}
	if tokens, ok := args["tokens"]; ok {
		first, n, _ := strings.Cut(tokens, "+")
		b.FirstToken, b.NTokens = uint32(number(t, d, first)), uint32(number(t, d, n))
	}
	for _, id := range strings.Split(args["ids"], ",") {
		if id == "-" {
			b.IDs = append(b.IDs, layout.NoBlock)
		} else {
			b.IDs = append(b.IDs, uint32(number(t, d, id)))
		}
	}
	return b
}

func parseViews(t *testing.T, d *datadriven.TestData, args map[string]string) []layout.View {
	v := layout.View{Region: 1, Kind: layout.Paged, Part: "kv"}
	v.Base, v.NumBlocks, v.BlockStride = number(t, d, args["base"]), number(t, d, args["blocks"]), number(t, d, args["stride"])
	v.ContentBytes, v.BlockSize, v.Group = number(t, d, args["content"]), uint32(number(t, d, args["tokens"])), uint32(number(t, d, args["group"]))
	if part, ok := args["part"]; ok {
		v.Part = part
	}
	if region, ok := args["region"]; ok {
		v.Region = layout.RegionID(number(t, d, region))
	}
	if _, ok := args["opaque"]; ok {
		v.Kind = layout.Opaque
	} else {
		heads, total, _ := strings.Cut(args["heads"], "/")
		first, end, _ := strings.Cut(heads, "-")
		v.FirstHead, v.TotalHeads = uint32(number(t, d, first)), uint32(number(t, d, total))
		v.Heads = uint32(number(t, d, end)) - v.FirstHead
		token, head, _ := strings.Cut(args["strides"], ",")
		v.TokenStride, v.HeadStride = number(t, d, token), number(t, d, head)
	}
	from, to, several := strings.Cut(args["layers"], "-")
	if !several {
		to = from
	}
	var views []layout.View
	for layer := number(t, d, from); layer <= number(t, d, to); layer++ {
		v.Layer = uint32(layer)
		views = append(views, v)
		v.Base += number(t, d, args["apart"])
	}
	return views
}

// number reads a number; a missing one is 0.
func number(t *testing.T, d *datadriven.TestData, s string) uint64 {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return n
}

// describe prints a plan as people read it.
func describe(r plan.Request) string {
	p, err := plan.New(r)
	if err != nil {
		return err.Error() + "\n"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d bytes in %d slices;", p.Bytes(), p.Slices())
	var ranks []int
	for rank := range p.RankBytes() {
		ranks = append(ranks, int(rank))
	}
	sort.Ints(ranks)
	for _, rank := range ranks {
		fmt.Fprintf(&out, " rank %d: %d", rank, p.RankBytes()[uint32(rank)])
	}
	fmt.Fprintln(&out)
	for _, m := range p.Missing() {
		fmt.Fprintf(&out, "missing: group %d blocks %d+%d\n", m.Group, m.First, m.Count)
	}
	for _, m := range p.Marks() {
		fmt.Fprintf(&out, "mark: slice %d: rank %d layer %d to layer %d\n", m.First, m.SrcRank, m.SrcLayer, m.DstLayer)
	}
	for i := range p.Slices() {
		s := p.Slice(i)
		fmt.Fprintf(&out, "slice %d: %d bytes, rank %d to %d\n", i, s.Bytes, s.SrcRank, s.DstRank)
		fmt.Fprintf(&out, "  src  %s\n", describeRuns(p.Src(i, nil)))
		fmt.Fprintf(&out, "  dst  %s\n", describeRuns(p.Dst(i, nil)))
		fmt.Fprintf(&out, "  both")
		for _, q := range p.Pairs(i, nil) {
			fmt.Fprintf(&out, " %d:%d>%d:%d+%d", q.SrcRegion, q.SrcOff, q.DstRegion, q.DstOff, q.Len)
		}
		fmt.Fprintln(&out)
	}
	return out.String()
}

func describeRuns(runs []plan.Run) string {
	var words []string
	for _, r := range runs {
		words = append(words, fmt.Sprintf("%d:%d+%d", r.Region, r.Off, r.Len))
	}
	return strings.Join(words, " ")
}
