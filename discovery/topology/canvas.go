package topology

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// canvas collects the elements of an SVG.
type canvas struct{ strings.Builder }

func (c *canvas) rect(class string, f frame, round int) {
	fmt.Fprintf(c, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="%d"/>`+"\n", class, f.x, f.y, f.w, f.h, round)
}

func (c *canvas) text(class string, x, y int, s string) {
	fmt.Fprintf(c, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, x, y, escape(s))
}

// path draws lines from point to point.
func (c *canvas) path(class string, at ...int) {
	fmt.Fprintf(c, `<path class="%s" d="M%d %d`, class, at[0], at[1])
	for i := 2; i < len(at); i += 2 {
		fmt.Fprintf(c, " L%d %d", at[i], at[i+1])
	}
	c.WriteString("\"/>\n")
}

// page is the whole file.
func (d *drawing) page(title string) string {
	w, h := d.right+margin, d.bottom+margin
	var out canvas
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n", w, h, w, h)
	fmt.Fprintf(&out, "<title>%s</title>\n<style>%s</style>\n", escape(title), style)
	out.rect("paper", frame{0, 0, w, h}, 0)
	out.text("title", margin, margin+14, title)
	out.WriteString(d.c.String())
	out.WriteString("</svg>\n")
	return out.String()
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

// fit shortens s to n letters.
func fit(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// short leaves out the PCI domain if it is 0000, as it mostly is.
func short(pci string) string { return strings.TrimPrefix(pci, "0000:") }

// style has a rule for each class, and another one for dark displays. Variables would be shorter, but not every
// program that shows SVG supports them.
const style = `
text{font-family:system-ui,"DejaVu Sans",Arial,sans-serif;font-size:12px;fill:#1f2328}
.title{font-size:16px;font-weight:600}
.head{font-size:14px;font-weight:600}
.strong{font-weight:600}
.small{font-size:10.5px;fill:#59636e}
.tiny{font-size:9px}
.mid{text-anchor:middle}
.end{text-anchor:end}
.nv{fill:#6639ba}
.paper{fill:#ffffff}
.node{fill:#f1f3f5;stroke:#818b98}
.root{fill:#ffffff;stroke:#b7bfc8}
.bar{fill:#e4e8ec;stroke:#818b98}
.switch{fill:#fff4d6;stroke:#bf8700}
.gpu{fill:#dcf7e3;stroke:#1a7f37}
.nic{fill:#dcefff;stroke:#0969da}
.mig{fill:#ffffff;stroke:#1a7f37}
.nvswitch{fill:#ede3ff;stroke:#8250df}
.bus{fill:none;stroke:#818b98;stroke-width:1.5}
.wire{fill:none;stroke:#8250df;stroke-width:1.5}
@media (prefers-color-scheme:dark){
text{fill:#f0f6fc}
.small{fill:#a9b4c0}
.nv{fill:#d2a8ff}
.paper{fill:#0d1117}
.node{fill:#161b22;stroke:#6e7681}
.root{fill:#0d1117;stroke:#3d444d}
.bar{fill:#262c36;stroke:#6e7681}
.switch{fill:#2b2111;stroke:#bb8009}
.gpu{fill:#12291b;stroke:#3fb950}
.nic{fill:#0f2540;stroke:#4493f8}
.mig{fill:#0d1117;stroke:#3fb950}
.nvswitch{fill:#271c3d;stroke:#ab7df8}
.bus{stroke:#6e7681}
.wire{stroke:#ab7df8}
}
`
