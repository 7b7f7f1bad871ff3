// Bench measures Tempool against what it is compared with: the same program spawned by hand, a no-op workflow on the same
// server, RoadRunner's pool, gunicorn and uWSGI. Both sides take turns in one run, round by round, so that both see the same
// machine; docs/benchmarks.md explains each comparison. It prints tables and writes JSON, and is run from the repository:
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

	"github.com/tempool/tempool/process"
)

// benchmark is one comparison that can be chosen by name.
type benchmark struct {
	name, what string
	run        func(context.Context, *bench) error
}

var benchmarks = []benchmark{
	{"crash", "a killed worker's next incarnation, against spawning the program by hand", measureCrash},
	{"cut", "a call whose worker is killed", measureCut},
	{"lease", "durable leases, against no-op updates and signals on the same server", measureLease},
	{"calls", "calls within one process, against RoadRunner's pool", measureCalls},
	{"web", "calls over HTTP, against gunicorn and uWSGI", measureWeb},
	{"idle", "ten thousand idle connections", measureIdle},
	{"sessions", "the embedded session store, and what sessions weigh", measureSessions},
	{"redis", "sessions in Redis, against a bare client of the same server", measureRedis},
	{"engines", "the session store's engine, against two others", measureEngines},
	{"spread", "how calls fall upon eight workers, with sessions", measureSpread},
	{"events", "what leases and idle days write into histories", measureEvents},
	{"fleet", "a pool of a hundred, against a hundred spawned by hand", measureFleet},
}

func main() {
	process.RunReaperIfAsked()
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role, os.Args[1:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
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
	rounds := flags.Int("rounds", 10, "rounds in which the two sides of a comparison take turns")
	out := flags.String("json", "", "file for the results as JSON (default bin/bench.json in the repository)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || flags.NArg() > 0 {
		return fmt.Errorf("-rounds is %d and must be at least 1, and there are no arguments; got %q", *rounds, flags.Args())
	}
	var chosen []benchmark
	for name := range strings.SplitSeq(*only, ",") {
		at := slices.IndexFunc(benchmarks, func(b benchmark) bool { return b.name == name })
		if at < 0 {
			return fmt.Errorf("there is no benchmark %q; choose from %s", name, strings.Join(names, ", "))
		}
		chosen = append(chosen, benchmarks[at])
	}
	b, err := newBench(ctx, *rounds)
	if err != nil {
		return err
	}
	defer b.close()
	path := cmp.Or(*out, filepath.Join(b.root, "bin", "bench.json"))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of %s: %w", path, err)
	}
	for _, one := range chosen {
		if err := b.measure(ctx, one); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		if err := b.report.write(path); err != nil { // after each, so that a later failure costs nothing
			return err
		}
	}
	picture := strings.TrimSuffix(path, ".json") + ".svg"
	if err := replaceFile(picture, []byte(b.report.chart())); err != nil {
		return err
	}
	fmt.Println("\nwritten to", path, "and", picture)
	return nil
}

// measure runs one benchmark and prints what came of it.
func (b *bench) measure(ctx context.Context, one benchmark) error {
	b.result = &result{Name: one.name, What: one.what, Rounds: b.rounds, LoadBefore: loadAverage()}
	fmt.Printf("\n%s: %s\n", one.name, one.what)
	began := time.Now()
	if err := one.run(ctx, b); err != nil {
		return err
	}
	b.result.Seconds, b.result.LoadAfter = time.Since(began).Seconds(), loadAverage()
	b.report.Results = append(b.report.Results, b.result)
	return b.result.print(os.Stdout)
}
