// Kvpipe-bench holds kvpipe against its limits. It starts daemons and clients
// itself and lets them take turns with plain reference programs (bench/ref)
// that move the very same lists. It prints medians, the spread of each thing
// against itself (A/A), ratios, and whether each target was met. It ends with
// "bench: N targets, M short" and writes everything to a JSON file. A missed
// target is a result, not an error.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/kvpipe/kvpipe/bench/stats"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kvpipe-bench:", err)
		os.Exit(1)
	}
}

type options struct {
	only   string
	quick  bool
	rounds int
	out    string
	bin    string
	list   bool
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("kvpipe-bench", flag.ContinueOnError)
	f.StringVar(&o.only, "only", "", "run only groups whose name or rows contain `TEXT`")
	f.BoolVar(&o.quick, "quick", false, "three rounds instead of seven, fewer small hand-overs")
	f.IntVar(&o.rounds, "rounds", 0, "measured rounds of each row (default 7, or 3 with --quick)")
	f.StringVar(&o.out, "out", "build/bench.json", "`FILE` for the results")
	f.StringVar(&o.bin, "bin", "", "`DIR` of kvpiped, bench-client and the references (default: this program's)")
	f.BoolVar(&o.list, "list", false, "print the groups and their rows, and end")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q, see --help", f.Arg(0))
	}
	if o.rounds == 0 {
		o.rounds = 7
		if o.quick {
			o.rounds = 3
		}
	}
	if o.rounds < 1 {
		return o, fmt.Errorf("rounds: %d is below 1", o.rounds)
	}
	return o, nil
}

func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		if err == flag.ErrHelp {
			return nil
		}
		return err
	}
	var chosen []group
	for _, g := range groups {
		if g.matches(o.only) {
			chosen = append(chosen, g)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("only: no group or row contains %q; --list shows them", o.only)
	}
	if o.list {
		for _, g := range chosen {
			fmt.Println(g)
		}
		return nil
	}
	e, err := newEnv(o)
	if err != nil {
		return err
	}
	defer e.close()
	e.closeOnSignal()
	report := newReport(o)
	fmt.Println(report.Machine)
	if err := stats.Head(os.Stdout); err != nil {
		return err
	}
	for _, g := range chosen {
		for _, row := range g.measure(e) {
			report.Rows = append(report.Rows, row)
			if err := stats.Line(os.Stdout, row); err != nil {
				return err
			}
		}
	}
	report.Targets, report.Short = stats.Summary(report.Rows)
	if err := report.write(o.out); err != nil {
		return err
	}
	fmt.Printf("bench: %d targets, %d short\n", report.Targets, report.Short)
	return nil
}

// env is what every group needs: programs, a private directory, and how long to
// measure.
type env struct {
	bin, dir string
	rounds   int
	small    int // hand-overs of 4 KiB per round
	serial   int // makes keys and directories unique
}

func newEnv(o options) (*env, error) {
	e := &env{bin: o.bin, rounds: o.rounds, small: 1000}
	if o.quick {
		e.small = 300
	}
	if e.bin == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		e.bin = filepath.Dir(self)
	}
	for _, name := range []string{"kvpiped", "bench-client", "ref-memcpy", "ref-tcp", "ref-tls", "ref-latency"} {
		if _, err := os.Stat(filepath.Join(e.bin, name)); err != nil {
			return nil, fmt.Errorf("%w: build it with make", err)
		}
	}
	// Directly below /tmp, because paths of unix sockets must be short.
	dir, err := os.MkdirTemp("/tmp", "kvbench")
	e.dir = dir
	return e, err
}

// closeOnSignal cleans up if the benchmark is interrupted. Its children die
// with it.
func (e *env) closeOnSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		s := <-signals
		e.close()
		fmt.Fprintln(os.Stderr, "kvpipe-bench:", s)
		os.Exit(1)
	}()
}

func (e *env) close() { _ = os.RemoveAll(e.dir) }

// unique returns a new name for a key or directory.
func (e *env) unique(prefix string) string {
	e.serial++
	return fmt.Sprintf("%s%d", prefix, e.serial)
}

func (g group) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:", g.name)
	for _, t := range g.targets {
		fmt.Fprintf(&b, "\n  %s", t.row)
		if t.bound != stats.None {
			fmt.Fprintf(&b, " (%s %v)", t.bound, t.limit)
		}
	}
	return b.String()
}
