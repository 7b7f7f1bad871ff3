package devserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tempool/tempool/internal/atomicfile"
	"github.com/tempool/tempool/internal/installcache"
)

// downloadRetry is how long a failed download is remembered. A machine without network then does not retry it at every
// start.
const downloadRetry = 24 * time.Hour

// installer keeps the temporal program at <folder>/<installed>/temporal, and a note of the last failed download beside
// it. download and build write the program to the path that they are given.
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
	errDownload := i.recentFailure()
	if errDownload == nil {
		errDownload = i.run(ctx, "Downloading the Temporal server", program, i.download)
		if errDownload != nil && ctx.Err() == nil {
			if err := i.recordFailure(errDownload); err != nil {
				return err
			}
		}
	}
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
	done := make(chan error, 1)
	go func() { done <- step(ctx, filepath.Dir(program), program) }()
	ticker := time.NewTicker(i.interval)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			return checkVersion(ctx, program)
		case <-ticker.C:
			i.progress(fmt.Sprintf("%s: %d s so far.", action, int(time.Since(began).Seconds())))
		}
	}
}

func (i installer) failureNote() string { return filepath.Join(i.folder, "download-failed") }

// recentFailure returns the error of the last download, if it failed less than downloadRetry ago.
func (i installer) recentFailure() error {
	info, err := os.Stat(i.failureNote())
	if err != nil || time.Since(info.ModTime()) > downloadRetry {
		return nil
	}
	note, err := os.ReadFile(i.failureNote())
	if err != nil {
		return nil
	}
	return fmt.Errorf("failed on %s: %s", info.ModTime().Format(time.DateTime), strings.TrimSpace(string(note)))
}

func (i installer) recordFailure(failure error) error {
	if err := atomicfile.Write(i.failureNote(), []byte(failure.Error()+"\n"), 0o644); err != nil {
		return fmt.Errorf("record the failed download: %w", err)
	}
	return nil
}
