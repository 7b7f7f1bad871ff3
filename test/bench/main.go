// Bench compares Tempool with other programs: the same worker program without Tempool, a no-op workflow on the same
// Temporal server, RoadRunner's pool, gunicorn and uWSGI. The sides of a comparison alternate in rounds within one run;
// README.md describes the method and each benchmark. It prints tables and writes JSON. Run it in the repository:
//
//	go run ./test/bench -only crash,lease
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// benchmark is a group that -only selects by name.
type benchmark struct {
	name, what string
	run        func(context.Context, *bench)
}

var benchmarks = []benchmark{
	{"crash", "restart of a killed worker, compared with starting the program alone", measureCrash},
	{"lease", "durable leases, compared with no-op updates and signals on the same server", measureLease},
	{"isolation", "a clean process for each use, and restarts by forks, compared with runs of the interpreter",
		measureIsolation},
	{"rested", "the first call of a pool after a pause, compared with the next one, and what calls leave in histories",
		measureRested},
	{"calls", "in-process calls, compared with RoadRunner's pool", measureCalls},
	{"web", "calls over HTTP, compared with gunicorn and uWSGI", measureWeb},
	{"sessions", "latency, throughput and memory of the embedded session store; Redis, compared with plain commands",
		measureSessions},
	{"sizing", "actions, history and database operations of starts, leases, samples and idle days", measureSizing},
	{"hosts", "start of 400 workers, compared with as many child workflows; of 100, compared with the programs alone; " +
		"memory; idle workers; an agent's restart", measureHosts},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if temporal := os.Getenv(noopEnv); temporal != "" {
		err = serveNoop(ctx, temporal)
	} else {
		err = run(ctx, os.Args[1:])
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var names []string
	for _, b := range benchmarks {
		names = append(names, b.name)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", strings.Join(names, ","), "benchmarks to run, separated by commas")
	rounds := flags.Int("rounds", 10, "number of rounds in which the sides alternate")
	pause := flags.Duration("pause", 5*time.Second, "how long rested leaves its pool alone before a call")
	uses := flags.Int64("uses", 10_000, "number of uses, without and with kills, in isolation")
	out := flags.String("json", "", "JSON file for the results (default bin/bench.json in the repository)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || flags.NArg() > 0 {
		return fmt.Errorf("-rounds must be positive, got %d; unexpected arguments: %q", *rounds, flags.Args())
	}
	var chosen []benchmark
	for name := range strings.SplitSeq(*only, ",") {
		at := slices.Index(names, name)
		if at < 0 {
			return fmt.Errorf("unknown benchmark %q; choose from %s", name, strings.Join(names, ", "))
		}
		chosen = append(chosen, benchmarks[at])
	}
	b := &bench{rounds: *rounds, pause: *pause, uses: *uses}
	return attempt(func() {
		b.within(ctx, func() {
			b.prepare(ctx)
			path := cmp.Or(*out, filepath.Join(b.root, "bin", "bench.json"))
			check(os.MkdirAll(filepath.Dir(path), 0o755))
			for _, one := range chosen {
				if err := attempt(func() { b.measure(ctx, one) }); err != nil {
					check(fmt.Errorf("%s: %w", one.name, err))
				}
				b.report.write(path) // after each benchmark, so that a later failure loses nothing
			}
			fmt.Println("\nwrote", path)
		})
	})
}

// measure runs one benchmark and prints its result.
func (b *bench) measure(ctx context.Context, one benchmark) {
	b.result = &result{Name: one.name, What: one.what, Rounds: b.rounds, LoadBefore: loadAverage()}
	fmt.Printf("\n%s: %s\n", one.name, one.what)
	began := time.Now()
	b.within(ctx, func() { one.run(ctx, b) })
	b.result.Seconds, b.result.LoadAfter = time.Since(began).Seconds(), loadAverage()
	b.report.Results = append(b.report.Results, b.result)
	b.result.print(os.Stdout)
}
