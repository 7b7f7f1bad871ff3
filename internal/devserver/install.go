package devserver

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/tempool/tempool/internal/installcache"
)

// installer keeps the temporal program at <folder>/<installed>/temporal. download and build write the program to the
// path that they are given.
type installer struct {
	folder   string
	progress func(sentence string)
	download func(ctx context.Context, scratch, program string) error
	build    func(ctx context.Context, scratch, program string) error
}

// ensure returns the installed program and installs it first if it is missing.
func (i installer) ensure(ctx context.Context) (string, error) {
	path, err := installcache.Ensure(ctx, i.folder, installed, "temporal", i.install)
	if err != nil {
		return "", fmt.Errorf("install the Temporal server: %w", err)
	}
	return path, nil
}

func (i installer) install(ctx context.Context, scratch string) error {
	program := filepath.Join(scratch, "temporal")
	i.progress("Downloading the Temporal server, once; with a slow line that takes minutes.")
	errDownload := step(ctx, i.download, program)
	if errDownload == nil || ctx.Err() != nil {
		return errDownload
	}
	i.progress("The Temporal server cannot be downloaded; building it with Go, which takes about three minutes, once.")
	if err := step(ctx, i.build, program); err != nil {
		return fmt.Errorf("it can be neither downloaded (%v) nor built (%w); install the temporal command line "+
			"(https://docs.temporal.io/cli) on the PATH, or set TEMPORAL_ADDRESS to a running server", errDownload, err)
	}
	return nil
}

// step runs one step, and checks the program that it wrote.
func step(ctx context.Context, run func(ctx context.Context, scratch, program string) error, program string) error {
	if err := run(ctx, filepath.Dir(program), program); err != nil {
		return err
	}
	return checkVersion(ctx, program)
}
