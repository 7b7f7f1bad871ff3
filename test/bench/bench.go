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

// bench is one run: a temporary directory, a Python interpreter, and a Temporal server that starts on first use.
type bench struct {
	pause  time.Duration // of rested
	rounds int

	report report
	result *result // of the current benchmark

	root   string // of the repository
	dir    string // temporary
	python string // the interpreter itself, not a wrapper; every side runs it

	server  *devserver.Server
	metrics string // address of the server's metrics
	client  *tempool.Client

	ends []func(context.Context) error // what atEnd has registered, in start order
}

// within runs a part of the run and then ends what the part has started, the newest first.
func (b *bench) within(ctx context.Context, part func() error) error {
	outer := b.ends
	b.ends = nil
	failures := part()
	for _, end := range slices.Backward(b.ends) {
		failures = errors.Join(failures, end(context.WithoutCancel(ctx)))
	}
	b.ends = outer
	return failures
}

// atEnd makes end run at the end of the current part.
func (b *bench) atEnd(end func(context.Context) error) { b.ends = append(b.ends, end) }

func newBench(ctx context.Context, rounds int) (*bench, error) {
	root, err := repository(ctx)
	if err != nil {
		return nil, err
	}
	b := &bench{rounds: rounds, root: root}
	if b.python, err = interpreter(ctx); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return nil, fmt.Errorf("create a temporary directory: %w", err)
	}
	programs, err := fs.Sub(workers, "workers")
	if err == nil {
		err = os.CopyFS(filepath.Join(b.dir, "workers"), programs)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("unpack the Python programs: %w", err), os.RemoveAll(b.dir))
	}
	b.report = report{At: time.Now().UTC().Truncate(time.Second), CPU: cpuModel(), Cores: runtime.NumCPU(),
		System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	b.report.Python, _ = output(ctx, b.dir, b.python, "--version") // optional
	b.report.Commit, _ = output(ctx, root, "git", "rev-parse", "--short", "HEAD")
	return b, nil
}

func (b *bench) close() {
	if b.client != nil {
		b.client.Close()
	}
	if b.server != nil {
		if err := b.server.Stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
	_ = os.RemoveAll(b.dir) // temporary
}

// temporal starts the Temporal server that all benchmarks of a run share, with a database file.
func (b *bench) temporal(ctx context.Context) error {
	if b.server != nil {
		return nil
	}
	var err error
	if b.metrics, err = freeAddress(); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(b.metrics)
	if err != nil {
		return err
	}
	b.server, err = devserver.Start(ctx, devserver.Options{
		DBFile: filepath.Join(b.dir, "temporal.db"), UIPort: devserver.NoUI,
		// A cluster caches the search attributes; the development server reads them from its database each time.
		ExtraArgs: []string{"--metrics-port", port, "--dynamic-config-value",
			"system.forceSearchAttributesCacheRefreshOnRead=false"},
		Progress: func(sentence string) { fmt.Fprintln(os.Stderr, sentence) },
	})
	if err != nil {
		return err
	}
	b.client, err = tempool.Dial(ctx, tempool.Options{Address: b.server.Address(), Logger: silentLog()})
	return err
}

// repository returns the root of the repository that contains the working directory.
func repository(ctx context.Context) (string, error) {
	file, err := output(ctx, "", "go", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	root := filepath.Dir(file)
	if _, err := os.Stat(filepath.Join(root, "sdk", "python", "tempool")); err != nil {
		return "", fmt.Errorf("run the benchmarks in the Tempool repository: %w", err)
	}
	return root, nil
}

// interpreter returns the system's Python, which gunicorn and uWSGI use, or else the executable behind python3.
func interpreter(ctx context.Context) (string, error) {
	const system = "/usr/bin/python3"
	if _, err := os.Stat(system); err == nil {
		return system, nil
	}
	return output(ctx, "", "python3", "-c", "import sys; print(sys.executable)")
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

// echo returns the spec of a pool of workers that return their input. It disables rotation.max_requests, which these
// rates would reach within seconds and the other programs do not have.
func (b *bench) echo(name string, size int) spec.Spec {
	s := spec.Default()
	s.Pool.Name, s.Pool.Size, s.Pool.Command = name, size, []string{b.python, "echo.py"}
	s.Pool.Dir = filepath.Join(b.dir, "workers")
	s.Pool.Env = map[string]string{"PYTHONPATH": filepath.Join(b.root, "sdk", "python")}
	s.Rotation.MaxRequests = 0
	return s
}
