package config

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// checkTypes compares the values of a document with the types of their keys before they are decoded. The decoder would
// take TOML's integers for durations in nanoseconds, and its own errors speak of Go types. Unknown keys and syntax are
// left to the decoder.
func checkTypes(doc []byte) error {
	var p unstable.Parser
	p.Reset(doc)
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table:
			name := join(e.Key())
			if err := cmp.Or(checkCase(&p, e, name), checkTable(&p, e, name)); err != nil {
				return err
			}
			table = name + "."
		case unstable.ArrayTable:
			return fmt.Errorf("line %d: [[%s]]: no key takes a list of tables", line(&p, e), join(e.Key()))
		case unstable.KeyValue:
			if err := checkPair(&p, table, e); err != nil {
				return err
			}
		}
	}
	return nil // syntax errors are for the decoder to report
}

func join(it unstable.Iterator) string {
	var parts []string
	for it.Next() {
		parts = append(parts, string(it.Node().Data))
	}
	return strings.Join(parts, ".")
}

// parts counts the parts of a pair's key, which dots separate.
func parts(e *unstable.Node) (n int) {
	for it := e.Key(); it.Next(); {
		n++
	}
	return n
}

// lastPart returns the last part of a pair's key.
func lastPart(e *unstable.Node) (last string) {
	for it := e.Key(); it.Next(); {
		last = string(it.Node().Data)
	}
	return last
}

func line(p *unstable.Parser, n *unstable.Node) int {
	it := n.Key()
	if !it.Next() {
		return 1
	}
	return p.Shape(p.Range(it.Node().Data)).Start.Line
}

func checkPair(p *unstable.Parser, table string, e *unstable.Node) error {
	key, v := table+join(e.Key()), e.Value()
	if err := checkCase(p, e, key); err != nil {
		return err
	}
	if name, below := strings.CutPrefix(key, "peers.nodes."); below && parts(e) > 1 && strings.Count(table, ".")+parts(e) > 3 { // peers, nodes, name
		return fmt.Errorf("line %d: peers.nodes: put a name with dots in quotes: %q", line(p, e), name)
	}
	above := key
	if v.Kind != unstable.InlineTable {
		above = strings.TrimSuffix(key[:len(key)-len(lastPart(e))], ".") // a node's name may have dots
	}
	if err := checkTable(p, e, above); err != nil {
		return err
	}
	if v.Kind == unstable.InlineTable {
		for it := v.Children(); it.Next(); {
			if err := checkPair(p, key+".", it.Node()); err != nil {
				return err
			}
		}
		return nil
	}
	want := wanted(key)
	if want == nil || want.fits(v) {
		return nil
	}
	return fmt.Errorf("line %d: %s: %s where %s belongs", line(p, e), key, words[v.Kind], want.text)
}

// checkTable refuses a table, or a part of its name, where a key is that takes another value. For one and the same
// mistake, the decoder would name the table around it, or a type of Go.
func checkTable(p *unstable.Parser, e *unstable.Node, table string) error {
	for i := range len(table) + 1 {
		if i < len(table) && table[i] != '.' {
			continue
		}
		switch w := wanted(table[:i]); {
		case w == nil:
			return nil // nothing below is known
		case strings.HasPrefix(table, nodes+".") && i > len(nodes): // a node's name may have dots
			return fmt.Errorf("line %d: %s: a table where %s belongs", line(p, e), table, w.text)
		case w.kind != unstable.InlineTable:
			return fmt.Errorf("line %d: %s: a table where %s belongs", line(p, e), table[:i], w.text)
		}
	}
	return nil
}

// want is what a key takes as its value.
type want struct {
	kind unstable.Kind
	text string
}

func (w *want) fits(v *unstable.Node) bool {
	if v.Kind != w.kind {
		return false
	}
	if v.Kind == unstable.Array { // all lists here hold strings
		for it := v.Children(); it.Next(); {
			if k := it.Node().Kind; k != unstable.String && k != unstable.Comment {
				return false
			}
		}
	}
	return true
}

var words = map[unstable.Kind]string{
	unstable.String: "a text in quotes", unstable.Bool: "true or false", unstable.Integer: "a whole number", unstable.Float: "a number with a point",
	unstable.Array: "a list", unstable.LocalDate: "a date", unstable.LocalTime: "a time of day", unstable.LocalDateTime: "a date", unstable.DateTime: "a date",
}

// wanted returns what a key takes, or nil if there is no such key.
func wanted(key string) *want {
	t, ok := typeOf(key)
	if !ok {
		return nil
	}
	switch {
	case t == reflect.TypeFor[Duration]():
		return &want{unstable.String, "a duration in quotes, such as \"250ms\", \"30s\" or \"10m\","}
	case t == reflect.TypeFor[Size]():
		return &want{unstable.String, "a size in quotes, such as \"64KiB\", \"512MiB\" or \"1TiB\","}
	case t.Kind() == reflect.Bool:
		return &want{unstable.Bool, "true or false"}
	case t.Kind() == reflect.Int:
		return &want{unstable.Integer, "a whole number"}
	case t.Kind() == reflect.Slice:
		return &want{unstable.Array, "a list of texts, such as [\"a\", \"b\"],"}
	case t.Kind() == reflect.String:
		return &want{unstable.String, "a text in quotes"}
	}
	return &want{unstable.InlineTable, "a table"}
}

const nodes = "peers.nodes" // whose keys are names of nodes

// checkCase refuses what is a known key or table but for the case of its letters. TOML's keys have a case. The decoder
// ignores it, and of two spellings that a document has would quietly take the last.
func checkCase(p *unstable.Parser, e *unstable.Node, key string) error {
	known, name := key, ""
	if n := len(nodes); len(key) > n && key[n] == '.' && strings.EqualFold(key[:n], nodes) {
		known, name = key[:n], key[n:]
	}
	for _, k := range append(tables(), Keys()...) {
		if known != k && strings.EqualFold(known, k) {
			return fmt.Errorf("line %d: unknown key %q; did you mean %q?", line(p, e), key, k+name)
		}
	}
	return nil
}

// typeOf returns a key's type in Config. Keys of a map have the type of its values.
func typeOf(key string) (reflect.Type, bool) {
	t := reflect.TypeFor[Config]()
	for part := range strings.SplitSeq(key, ".") {
		if t.Kind() == reflect.Map {
			return t.Elem(), true // a node's name may have dots
		}
		f, ok := field(t, part)
		if !ok {
			return nil, false
		}
		t = f
	}
	return t, true
}

func field(t reflect.Type, name string) (reflect.Type, bool) {
	if t.Kind() != reflect.Struct {
		return nil, false
	}
	for i := range t.NumField() {
		// The decoder ignores case as well.
		if f := t.Field(i); strings.EqualFold(f.Tag.Get("toml"), name) {
			return f.Type, true
		}
	}
	return nil, false
}
