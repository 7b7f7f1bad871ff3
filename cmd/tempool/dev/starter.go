package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/cmd/tempool/codemetrics"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/internal/devserver"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

// Options are the flags.
type Options struct {
	Once      bool
	Address   string
	Namespace string
	// Payloads say how what Temporal stores is encoded; an agent uses no codec server.
	Payloads tempool.Payloads
	PoolFile string // "" is the example pool
	// Port and UIPort are of its own Temporal server; 0 is the default port, or any free port if that is taken.
	Port, UIPort int
	Listen       string // of the gateway; "" is the default address, or any free port if that is taken
	Security     gateway.Security
	// DataDir outlives a run. Default: tempool/dev in the user's cache folder.
	DataDir string
	Out     io.Writer
}

// starter is one run.
type starter struct {
	options Options
	data    *dataDir

	spec    spec.Spec
	library *codemetrics.Library // the files that the job measures; nil for no job

	server   *devserver.Server // nil if tempool dev uses a running server
	temporal tempool.Options
	client   *tempool.Client
	agent    *worker.Agent
	ownsPool bool // no other host runs workers of the pool, so tempool dev stops it

	stops []func() error // of the parts that were started, in that order
}

// line prints one line and ignores a failure to do so.
func (s *starter) line(format string, args ...any) { fmt.Fprintf(s.options.Out, format+"\n", args...) }

// onStop registers how to stop a part that was started; a part without a name is not reported.
func (s *starter) onStop(name string, timeout time.Duration, stop func(ctx context.Context) error) {
	s.stops = append(s.stops, func() error {
		if name != "" {
			s.line("Stopping %s.", name)
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := stop(ctx); err != nil {
			return fmt.Errorf("stop %s: %w", name, err)
		}
		return nil
	})
}

// stopAll stops all parts, the newest first. A failure does not keep it from stopping the others.
func (s *starter) stopAll() error {
	var failures error
	for _, stop := range slices.Backward(s.stops) {
		failures = errors.Join(failures, stop())
	}
	return failures
}
