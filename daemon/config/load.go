package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Load reads a file over the defaults. An unknown key is an error that names the nearest known one.
func Load(path string) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	c, err := Parse(b)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Parse reads TOML over the defaults, without checking it.
func Parse(b []byte) (Config, error) {
	c := Default()
	dec := toml.NewDecoder(bytes.NewReader(b)).DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return Config{}, explain(err)
	}
	return c, nil
}

func explain(err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		e := strict.Errors[0]
		key := strings.Join(e.Key(), ".")
		row, _ := e.Position()
		return fmt.Errorf("line %d: unknown key %q%s", row, key, nearest(key))
	}
	var de *toml.DecodeError
	if errors.As(err, &de) {
		row, col := de.Position()
		return fmt.Errorf("line %d, column %d: %s: %w", row, col, strings.Join(de.Key(), "."), de)
	}
	return err
}

// nearest names the known key that a misspelt one most likely meant.
func nearest(key string) string {
	best, least := "", 4
	for _, k := range Keys() {
		if d := distance(key, k); d < least {
			best, least = k, d
		}
		// The right name in the wrong table.
		if last := k[strings.LastIndexByte(k, '.')+1:]; last == key[strings.LastIndexByte(key, '.')+1:] {
			best, least = k, 0
		}
	}
	if best == "" {
		return "; kvpiped.toml(5) lists all keys"
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is Levenshtein's.
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
