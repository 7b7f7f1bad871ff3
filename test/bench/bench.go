package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/internal/devserver"
	"github.com/tempool/tempool/spec"
)

//go:embed workers
var workers embed.FS

// bench is one run: a temporary directory, the programs, and a Temporal server that all benchmarks share.
type bench struct {
	pause  time.Duration // of rested
	uses   int64         // of isolation
	rounds int

	report report
	result *result // of the current benchmark

	root    string // of the repository
	dir     string // temporary
	tempool string // the program
	python  string // the interpreter itself, not a wrapper; every side runs it

	server  *devserver.Server
	metrics string // address of the server's metrics
	client  *tempool.Client

	ends []func(context.Context) error // what atEnd has registered, in start order
}

// failure ends a benchmark.
type failure struct{ error }

// check ends the benchmark if err is not nil, as require does with a test. Only the goroutine that runs the benchmark
// may call it.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must is check for a function that also returns a value.
func must[T any](value T, err error) T {
	check(err)
	return value
}

// attempt runs a part of a benchmark and returns the error with which check has ended it.
func attempt(part func()) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failure:
			err = ended.error
		default:
			panic(ended)
		}
	}()
	part()
	return nil
}

// within runs a part of the run and then ends what the part has started, the newest first.
func (b *bench) within(ctx context.Context, part func()) {
	outer := b.ends
	b.ends = nil
	err := attempt(part)
	for _, end := range slices.Backward(b.ends) {
		err = errors.Join(err, end(context.WithoutCancel(ctx)))
	}
	b.ends = outer
	check(err)
}

// atEnd makes end run at the end of the current part.
func (b *bench) atEnd(end func(context.Context) error) { b.ends = append(b.ends, end) }

// inTurn runs each of n sides once in every round; a different side starts each round.
func (b *bench) inTurn(n int, run func(side int)) {
	for round := range b.rounds {
		for i := range n {
			run((i + round) % n)
		}
	}
}

// timedSide is an operation, and the row of its durations.
type timedSide struct {
	row *series
	do  func(n int) (milliseconds float64)
}

// alternate runs the sides n times in each round, one after the other, and adds the medians of a round to their rows.
func (b *bench) alternate(n int, sides ...timedSide) {
	for round := range b.rounds {
		took := make([][]float64, len(sides))
		for i := range n {
			for offset := range sides {
				side := (offset + round) % len(sides) // each is first once in as many rounds
				took[side] = append(took[side], sides[side].do(i))
			}
		}
		for i, side := range sides {
			side.row.add(median(took[i]))
		}
	}
}

// prepare finds or makes what the benchmarks need, and starts the Temporal server, with a database file.
func (b *bench) prepare(ctx context.Context) {
	b.root = filepath.Dir(must(output(ctx, "", "go", "env", "GOMOD")))
	if _, err := os.Stat(filepath.Join(b.root, "sdk", "python", "tempool")); err != nil {
		check(fmt.Errorf("run the benchmarks in the Tempool repository: %w", err))
	}
	b.python = "/usr/bin/python3" // which gunicorn and uWSGI use
	if _, err := os.Stat(b.python); err != nil {
		b.python = must(output(ctx, "", "python3", "-c", "import sys; print(sys.executable)"))
	}
	b.dir = must(os.MkdirTemp("", "bench"))
	b.atEnd(func(context.Context) error { return os.RemoveAll(b.dir) })
	check(os.CopyFS(filepath.Join(b.dir, "workers"), must(fs.Sub(workers, "workers"))))
	b.tempool = b.build(ctx, "./cmd/tempool")
	b.report = report{At: time.Now().UTC().Truncate(time.Second), CPU: cpuModel(), Cores: runtime.NumCPU(),
		System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	b.report.Python, _ = output(ctx, b.dir, b.python, "--version") // optional
	b.report.Commit, _ = output(ctx, b.root, "git", "rev-parse", "--short", "HEAD")
	b.metrics = freeAddress()
	_, port, err := net.SplitHostPort(b.metrics)
	check(err)
	b.server, err = devserver.Start(ctx, devserver.Options{
		DBFile: filepath.Join(b.dir, "temporal.db"), UIPort: devserver.NoUI,
		// A cluster caches the search attributes; the development server reads them from its database each time.
		ExtraArgs: []string{"--metrics-port", port, "--dynamic-config-value",
			"system.forceSearchAttributesCacheRefreshOnRead=false"},
		Progress: func(sentence string) { fmt.Fprintln(os.Stderr, sentence) },
	})
	check(err)
	b.atEnd(b.server.Stop)
	b.client = must(tempool.Dial(ctx, tempool.Options{Address: b.server.Address(), Logger: silentLog()}))
	b.atEnd(func(context.Context) error { b.client.Close(); return nil })
}

// build builds a program of the repository and returns its path.
func (b *bench) build(ctx context.Context, source string) string {
	program := filepath.Join(b.dir, filepath.Base(source))
	must(output(ctx, b.root, "go", "build", "-o", program, source))
	return program
}

// output runs a command and returns its trimmed stdout.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	printed, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(printed)), nil
}

// freeAddress returns an unused loopback address.
func freeAddress() string {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	return listener.Addr().String()
}

// trivial returns the spec of a pool of a program.
func trivial(program, name string, size int) spec.Spec {
	s := spec.Default()
	s.Pool.Name, s.Pool.Size, s.Pool.Command = name, size, []string{program}
	return s
}

// echo returns the spec of a pool of workers that return their input. It disables rotation.max_requests, which these
// rates would reach within seconds and the other programs do not have.
func (b *bench) echo(name string, size int) spec.Spec {
	s := trivial(b.python, name, size)
	s.Pool.Command = append(s.Pool.Command, "echo.py")
	s.Pool.Dir = filepath.Join(b.dir, "workers")
	s.Pool.Env = map[string]string{"PYTHONPATH": filepath.Join(b.root, "sdk", "python")}
	s.Rotation.MaxRequests = 0
	return s
}

// echoInflight is echo with workers that take so many calls at a time.
func (b *bench) echoInflight(name string, size, inflight int) spec.Spec {
	s := b.echo(name, size)
	s.Pool.MaxInflight = inflight
	return s
}
