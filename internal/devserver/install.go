package devserver

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tempool/tempool/internal/installcache"
	"github.com/tempool/tempool/internal/sleep"
)

// installer keeps the temporal program at <folder>/<installed>/temporal. download and build write the program to the
// path that they are given.
type installer struct {
	folder   string
	progress func(sentence string)
	interval time.Duration // between two sentences about a running step
	download func(ctx context.Context, scratch, program string) error
	build    func(ctx context.Context, scratch, program string) error
}

// ensure returns the installed program and installs it first if it is missing.
func (i installer) ensure(ctx context.Context) (string, error) {
	cache := installcache.Folder{Path: i.folder, WaitingInterval: i.interval, Waiting: func(waited time.Duration) {
		i.progress(fmt.Sprintf("Waiting for another process that installs the Temporal server: %d s so far.",
			int(waited.Seconds())))
	}}
	path, err := cache.Ensure(ctx, installed, "temporal", i.install)
	if err != nil {
		return "", fmt.Errorf("install the Temporal server: %w", err)
	}
	return path, nil
}

func (i installer) install(ctx context.Context, scratch string) error {
	program := filepath.Join(scratch, "temporal")
	errDownload := i.run(ctx, "Downloading the Temporal server", program, i.download)
	if errDownload == nil || ctx.Err() != nil {
		return errDownload
	}
	i.progress("The Temporal server cannot be downloaded; building it with Go, which takes about three minutes, once.")
	if err := i.run(ctx, "Building the Temporal server", program, i.build); err != nil {
		return fmt.Errorf("it can be neither downloaded (%v) nor built (%w); install the temporal command line "+
			"(https://docs.temporal.io/cli) on the PATH, or set TEMPORAL_ADDRESS to a running server", errDownload, err)
	}
	return nil
}

// run runs one step with progress and checks the program that it wrote.
func (i installer) run(ctx context.Context, action, program string,
	step func(ctx context.Context, scratch, program string) error) error {
	began := time.Now()
	var failure error
	done := sleep.Done(func() { failure = step(ctx, filepath.Dir(program), program) })
	for range sleep.Ticks(done, i.interval) {
		i.progress(fmt.Sprintf("%s: %d s so far.", action, int(time.Since(began).Seconds())))
	}
	if failure != nil {
		return failure
	}
	return checkVersion(ctx, program)
}
