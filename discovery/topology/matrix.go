package topology

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Matrix prints the topology as "nvidia-smi topo -m" does: how far the devices are from each other, the CPUs and the
// NUMA node near each, what the words mean and which NIC is which. Below that it prints what that program does not
// have: how far the memory of each NUMA node is, if there are several, and what is known of single devices.
func (t *Topology) Matrix(w io.Writer) error {
	out := bufio.NewWriter(w)
	if len(t.Devices) == 0 {
		fmt.Fprint(out, "no GPU and no NIC is known\n\n")
	} else {
		t.ways(out)
		t.memory(out)
	}
	t.numa(out)
	if len(t.Devices) > 0 {
		t.legend(out)
	}
	return out.Flush()
}

// ways prints the square of the devices, and the columns beside it.
func (t *Topology) ways(w io.Writer) {
	own := false // some GPU's memory is a NUMA node
	head := []string{""}
	for i := range t.Devices {
		head = append(head, t.Devices[i].ID)
		own = own || t.Devices[i].MemoryNode >= 0
	}
	head = append(head, "CPU Affinity", "NUMA Affinity")
	if own {
		head = append(head, "GPU NUMA ID")
	}
	rows := [][]string{head}
	for i := range t.Devices {
		d := &t.Devices[i]
		row := []string{d.ID}
		for _, x := range t.Links[i] {
			row = append(row, cell(x))
		}
		row = append(row, orNA(d.CPUs), node(d.Node))
		if own && d.Kind == KindGPU {
			row = append(row, node(d.MemoryNode))
		}
		rows = append(rows, row)
	}
	columns(w, rows)
	fmt.Fprintln(w)
}

// memory prints how far the memory of each NUMA node is.
func (t *Topology) memory(w io.Writer) {
	if len(t.Nodes) < 2 {
		return
	}
	fmt.Fprint(w, "Memory:\n\n")
	head := []string{""}
	for i := range t.Nodes {
		head = append(head, fmt.Sprintf("node %d", t.Nodes[i].ID))
	}
	rows := [][]string{head}
	for i := range t.Devices {
		row := []string{t.Devices[i].ID}
		for _, x := range t.Memory[i] {
			row = append(row, cell(x))
		}
		rows = append(rows, row)
	}
	columns(w, rows)
	fmt.Fprintln(w)
}

// numa prints the NUMA nodes.
func (t *Topology) numa(w io.Writer) {
	fmt.Fprint(w, "NUMA nodes:\n\n")
	rows := [][]string{{"", "CPUs", "Memory", "Distances"}}
	for i := range t.Nodes {
		n := &t.Nodes[i]
		var far []string
		for _, d := range n.Distance {
			far = append(far, strconv.Itoa(d))
		}
		rows = append(rows, []string{fmt.Sprintf("node %d", n.ID), orNA(n.CPUs), gib(n.Bytes), strings.Join(far, " ")})
	}
	columns(w, rows)
}

// legend explains words and names.
func (t *Topology) legend(w io.Writer) {
	fmt.Fprint(w, "\nLegend:\n\n")
	for _, l := range Legend {
		if l.Word != Unknown || t.has(Unknown) {
			fmt.Fprintf(w, "  %-4s = %s\n", l.Word, l.Text)
		}
	}
	for _, k := range []struct {
		kind  Kind
		title string
	}{{KindGPU, "GPU"}, {KindNIC, "NIC"}} {
		first := true
		for i := range t.Devices {
			d := &t.Devices[i]
			if d.Kind != k.kind {
				continue
			}
			if first {
				fmt.Fprintf(w, "\n%s Legend:\n\n", k.title)
				first = false
			}
			fmt.Fprintf(w, "  %s: %s\n", d.ID, d.describe())
		}
	}
}

// describe says in one line what a device is.
func (d *Device) describe() string {
	parts := []string{orNA(d.Name)}
	if d.Netdev != "" && d.Netdev != d.Name {
		parts[0] += " (" + d.Netdev + ")"
	}
	if d.PCI != "" {
		parts = append(parts, d.PCI)
	}
	if d.Root != "" {
		parts = append(parts, "at "+d.Root)
	}
	if d.VirtualOf != "" {
		parts = append(parts, "virtual function of "+d.VirtualOf)
	}
	if len(d.MIG) > 0 {
		parts = append(parts, "split into "+strings.Join(d.MIG, ", "))
	}
	if d.Problem != "" {
		parts = append(parts, d.Problem)
	}
	return strings.Join(parts, "; ")
}

// has says whether a word is in one of the tables.
func (t *Topology) has(w Word) bool {
	for i := range t.Devices {
		for _, x := range append(t.Links[i][:len(t.Links[i]):len(t.Links[i])], t.Memory[i]...) {
			if x == w {
				return true
			}
		}
	}
	return false
}

// columns prints rows with their columns aligned.
func columns(w io.Writer, rows [][]string) {
	var width []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], len(c)+3)
		}
	}
	for _, row := range rows {
		line := ""
		for i, c := range row {
			line += fmt.Sprintf("%-*s", width[i], c)
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

func cell(x Word) string {
	if x == Self {
		return " X"
	}
	return string(x)
}

func orNA(s string) string {
	if s == "" {
		return "N/A"
	}
	return s
}

func node(id int) string {
	if id < 0 {
		return "N/A"
	}
	return strconv.Itoa(id)
}

// gib writes bytes of memory for people.
func gib(n uint64) string {
	switch {
	case n == 0:
		return "N/A"
	case n < 10<<30:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d GiB", (n+1<<29)>>30)
}
