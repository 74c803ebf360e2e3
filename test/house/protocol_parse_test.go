package house

import (
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const protocolPage = "../../docs/protocol.md"

// table is one of the page's: what was said last before it, and its cells, the heading row first.
type table struct {
	lead string
	rows [][]string
}

// column is the place of a column, -1 when there is none.
func (tab table) column(name string) int {
	for i, cell := range tab.rows[0] {
		if cell == name {
			return i
		}
	}
	return -1
}

// headed says whether the table begins with those columns.
func (tab table) headed(names ...string) bool {
	for i, name := range names {
		if tab.column(name) != i {
			return false
		}
	}
	return true
}

// tables finds all tables of the page.
func tables(t *testing.T) (out []table) {
	t.Helper()
	var lead string
	inTable := false
	for line := range strings.Lines(read(t, protocolPage)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if inTable = false; line != "" {
				lead = line
			}
			continue
		}
		if !inTable {
			inTable = true
			out = append(out, table{lead: lead})
		}
		tab := &out[len(out)-1]
		var cells []string
		for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		if strings.Trim(strings.Join(cells, ""), "-") == "" {
			continue // the line below the heading
		}
		if len(tab.rows) > 0 && len(cells) != len(tab.rows[0]) {
			t.Errorf("after %q: %q has %d cells, the heading %d", lead, line, len(cells), len(tab.rows[0]))
			continue
		}
		tab.rows = append(tab.rows, cells)
	}
	if len(out) == 0 {
		t.Fatal("docs/protocol.md has no tables")
	}
	return out
}

var (
	exampleBlock = regexp.MustCompile("(?s)```hex ([^\n]+)\n(.*?)```")
	exampleToken = regexp.MustCompile(`#[^\n]*|"([^"\n]*)"|([0-9a-f]+)(?:\*(\d+))?|\S`)
)

// examples reads the page's bytes: hexadecimal digits, 00*5 for five times the same, "text", # comments.
func examples(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, block := range exampleBlock.FindAllStringSubmatch(read(t, protocolPage), -1) {
		name, digits := block[1], ""
		for _, token := range exampleToken.FindAllStringSubmatch(block[2], -1) {
			whole, text, number, times := token[0], token[1], token[2], token[3]
			switch {
			case whole[0] == '#':
			case whole[0] == '"':
				digits += hex.EncodeToString([]byte(text))
			case number != "":
				n := 1
				if times != "" {
					n, _ = strconv.Atoi(times) // digits, says the expression
				}
				digits += strings.Repeat(number, n)
			default:
				t.Errorf("example %s: %q is neither hexadecimal digits nor text", name, whole)
			}
		}
		bytes, err := hex.DecodeString(digits)
		if err != nil || len(bytes) == 0 || out[name] != nil {
			t.Errorf("example %s: %d bytes, %v; there was one before: %t", name, len(bytes), err, out[name] != nil)
		}
		out[name] = bytes
	}
	return out
}
