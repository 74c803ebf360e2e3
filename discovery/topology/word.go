package topology

import (
	"fmt"
	"strconv"
	"strings"
)

// Word is the way between two devices, as "nvidia-smi topo -m" writes it.
type Word string

// The words, nearest first; NV# stands between Self and PIX.
const (
	Self    Word = "X"
	PIX     Word = "PIX"
	PXB     Word = "PXB"
	PHB     Word = "PHB"
	NODE    Word = "NODE"
	SYS     Word = "SYS"
	Unknown Word = "?"
)

// NV is the word for n bonded NVLinks.
func NV(n int) Word { return Word(fmt.Sprintf("NV%d", n)) }

// NVLinks returns how many NVLinks the word stands for; 0 for other words.
func (w Word) NVLinks() int {
	digits, ok := strings.CutPrefix(string(w), "NV")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// ranks orders the words by nearness.
var ranks = map[Word]int{Self: 0, PIX: 2, PXB: 3, PHB: 4, NODE: 5, SYS: 6, Unknown: 7}

// Rank orders words: 0 is the device itself, 1 NVLink, 2 PIX, 3 PXB, 4 PHB, 5 NODE, 6 SYS, 7 not known.
func (w Word) Rank() int {
	if w.NVLinks() > 0 {
		return 1
	}
	if r, ok := ranks[w]; ok {
		return r
	}
	return ranks[Unknown]
}

// Legend explains the words, in the order that users of nvidia-smi are used to.
var Legend = []struct {
	Word Word
	Text string
}{
	{Self, "the device itself"},
	{SYS, "over PCIe and the link between NUMA nodes (UPI, xGMI, ...)"},
	{NODE, "over PCIe and between host bridges of one NUMA node"},
	{PHB, "over PCIe and one host bridge (a CPU's root complex)"},
	{PXB, "over several PCIe bridges, but no host bridge"},
	{PIX, "over one PCIe switch or bridge at most"},
	{"NV#", "over # bonded NVLinks"},
	{Unknown, "not known: /sys does not show the place of a device"},
}
