package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Load reads a file over the defaults. Each unknown key is an error that names the nearest known one.
func Load(path string) (Config, error) {
	b, err := readFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	c, err := Parse(b)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// maxFile is far more than a file with every key and all nodes has.
const maxFile = 4 << 20

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes: it is no configuration", path, maxFile)
	}
	return b, err
}

// Parse reads TOML over the defaults, without checking it.
func Parse(b []byte) (Config, error) {
	c := Default()
	if err := checkTypes(b); err != nil {
		return Config{}, err
	}
	dec := toml.NewDecoder(bytes.NewReader(b)).DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return Config{}, explain(err)
	}
	return c, nil
}

// maxTold is how many unknown keys an error names.
const maxTold = 8

func explain(err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) {
		var all []error
		for i, e := range strict.Errors {
			if i == maxTold {
				all = append(all, fmt.Errorf("and %d more", len(strict.Errors)-i))
				break
			}
			key := strings.Join(e.Key(), ".")
			row, _ := e.Position()
			all = append(all, fmt.Errorf("line %d: unknown key %q%s", row, key, nearest(key)))
		}
		return errors.Join(all...)
	}
	var de *toml.DecodeError
	if errors.As(err, &de) {
		row, col := de.Position()
		if key := strings.Join(de.Key(), "."); key != "" {
			return fmt.Errorf("line %d: %s: %s", row, key, plain(de))
		}
		return fmt.Errorf("line %d, column %d: %s", row, col, plain(de))
	}
	return err
}

// plain returns the decoder's text without the decoder's name. What is wrong with a text that does not end on its line
// is most often that a quote is missing.
func plain(err error) string {
	text := strings.TrimPrefix(err.Error(), "toml: ")
	if strings.HasSuffix(text, "strings cannot have new lines") || strings.HasPrefix(text, "unterminated ") {
		return "a quote is not closed (" + text + ")"
	}
	return text
}

// nearest names the known key that an unknown one most likely meant.
func nearest(key string) string {
	best, least := "", 4
	last := key[strings.LastIndexByte(key, '.')+1:]
	for _, k := range append(tables(), Keys()...) {
		if k == key {
			return ": quotes make one word of it; write it without them"
		}
		d := distance(key, k)
		if key == last { // it may be of an inline table, whose name is not told
			d = min(d, distance(key, k[strings.LastIndexByte(k, '.')+1:]))
		}
		if k == last || strings.HasSuffix(k, "."+last) {
			d -= len(key) + len(k) // the right name in the wrong table
		}
		if d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return "; the sample kvpiped.toml lists all keys"
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

func tables() []string {
	var out []string
	for _, k := range Keys() {
		if t, _, nested := strings.Cut(k, "."); nested && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// distance returns the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, diag+1, row[j]+1)
		}
	}
	return row[len(b)]
}
