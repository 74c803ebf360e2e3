// Ref-tls is the bare crypto/tls program that kvpipe's encrypted links are
// measured against. It moves the listed blocks of one process's memory to the
// listed blocks of another's, over TLS 1.3 connections on 127.0.0.1, with
// nothing in between. Commands and output are those of the C references, see
// bench/ref/serve.h.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

type settings struct {
	Block, Blocks int
	Seed          uint64
}

// round is what one "run" asks for.
type round struct {
	Streams int
	Stage   int // bytes gathered before a write; 0: one write per block
	BSends  bool
	Verify  bool
	Salt    uint64
}

type result struct {
	Ref     string  `json:"ref"`
	Cipher  string  `json:"cipher"`
	Mode    string  `json:"mode"`
	Dir     string  `json:"dir"`
	Streams int     `json:"streams"`
	Block   int     `json:"block"`
	Blocks  int     `json:"blocks"`
	Bytes   int     `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"gb_per_s"`
}

func main() {
	var s settings
	def := round{}
	child := flag.Bool("child", false, "internal: be the accepting process")
	flag.IntVar(&s.Block, "block", 64<<10, "`bytes` a block")
	flag.IntVar(&s.Blocks, "blocks", 16384, "blocks in the list and in each mapping")
	flag.Uint64Var(&s.Seed, "seed", 1, "of the lists, see bench/lists")
	flag.IntVar(&def.Streams, "streams", 1, "connections used, 1 or 2")
	flag.IntVar(&def.Stage, "stage", 0, "`bytes` gathered for one write, 0: one write a block")
	dir := flag.String("dir", "ab", "who sends: the dialling process (ab) or the other (ba)")
	rounds := flag.Int("rounds", 5, "measured rounds")
	serve := flag.Bool("serve", false, "take commands from stdin: run [streams=] [stage=] [dir=] [verify=1]")
	flag.Parse()
	def.BSends = *dir == "ba"
	var err error
	switch {
	case s.Block < 8 || s.Block%8 != 0 || s.Blocks < 1:
		err = fmt.Errorf("block: %d is not a positive multiple of 8, or blocks: %d is not positive", s.Block, s.Blocks)
	case *child:
		err = childMain(s)
	default:
		err = parentMain(s, def, *serve, *rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ref-tls:", err)
		os.Exit(1)
	}
}

func parentMain(s settings, def round, serve bool, rounds int) error {
	p, err := startPair(s)
	if err != nil {
		return err
	}
	defer p.stop()
	if serve {
		return p.serve(os.Stdin, def)
	}
	warm := def
	warm.Verify = true
	if _, err := p.run(warm); err != nil {
		return err
	}
	for range rounds {
		res, err := p.run(def)
		if err != nil {
			return err
		}
		if err := emit(res); err != nil {
			return err
		}
	}
	return nil
}

func (p *pair) serve(in io.Reader, def round) error {
	if err := emit(map[string]any{"ref": "tls", "ready": true}); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) > 0 && words[0] == "quit" {
			return nil
		}
		if err := p.command(words, def); err != nil {
			return err
		}
	}
	return lines.Err()
}

// command answers one line. It returns an error only if the program has to end.
func (p *pair) command(words []string, r round) error {
	if len(words) == 0 || words[0] != "run" {
		return emit(map[string]string{"error": "unknown command, want run or quit"})
	}
	for _, word := range words[1:] {
		if err := r.set(word); err != nil {
			return emit(map[string]string{"error": err.Error()})
		}
	}
	res, err := p.run(r)
	if err != nil {
		return err
	}
	return emit(res)
}

// set overrides one key of a round: "streams=2".
func (r *round) set(word string) error {
	key, value, _ := strings.Cut(word, "=")
	if key == "dir" {
		if value != "ab" && value != "ba" {
			return fmt.Errorf("dir: %s is not ab or ba", value)
		}
		r.BSends = value == "ba"
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Errorf("%s: %s is not a number", key, value)
	}
	switch {
	case key == "streams" && n >= 1 && n <= maxStreams:
		r.Streams = n
	case key == "stage" && n >= 0:
		r.Stage = n
	case key == "verify":
		r.Verify = n != 0
	default:
		return fmt.Errorf("%s: %d is out of range, or no such key", key, n)
	}
	return nil
}

func emit(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

func (p *pair) result(r round, took time.Duration) result {
	bytes := p.mem.block * len(p.mem.send)
	res := result{
		Ref: "tls", Cipher: p.cipher, Mode: "direct", Dir: "ab", Streams: r.Streams,
		Block: p.mem.block, Blocks: len(p.mem.send), Bytes: bytes,
		Seconds: took.Seconds(), Rate: float64(bytes) / took.Seconds() / 1e9,
	}
	if r.Stage > 0 {
		res.Mode = "staged"
	}
	if r.BSends {
		res.Dir = "ba"
	}
	return res
}
