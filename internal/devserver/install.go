package devserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// downloadRetry is how long a failed download is remembered, so that a machine without that road does not try it, and
// wait for it, each time.
const downloadRetry = 24 * time.Hour

// installer keeps the temporal program in a folder: <folder>/<Version>/temporal, next to a lock file and a note of the
// last failed download. The two roads put the program at the path they are given or fail.
type installer struct {
	folder   string
	progress func(sentence string)
	tick     time.Duration // between two sentences about a step that goes on
	download func(ctx context.Context, scratch, program string) error
	build    func(ctx context.Context, scratch, program string) error
}

func (i installer) program() string { return filepath.Join(i.folder, Version, "temporal") }

// ensure returns the installed program, installing it if need be.
func (i installer) ensure(ctx context.Context) (string, error) {
	if found, err := exists(i.program()); found || err != nil {
		return i.program(), err
	}
	if err := os.MkdirAll(i.folder, 0o755); err != nil {
		return "", fmt.Errorf("make a folder to keep the Temporal server in: %w", err)
	}
	unlock, err := i.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if found, err := exists(i.program()); found || err != nil {
		return i.program(), err
	}
	if err := i.install(ctx); err != nil {
		return "", err
	}
	return i.program(), nil
}

// install must hold the lock.
func (i installer) install(ctx context.Context) error {
	if err := i.sweep(); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(i.folder, scratchPrefix)
	if err != nil {
		return fmt.Errorf("make a folder to install the Temporal server in: %w", err)
	}
	defer os.RemoveAll(scratch)
	fresh := filepath.Join(scratch, "temporal")

	errDownload := i.recentFailure()
	if errDownload == nil {
		errDownload = i.try(ctx, "Downloading the Temporal server", i.download, scratch, fresh)
		if errDownload != nil && ctx.Err() == nil {
			if err := i.rememberFailure(errDownload); err != nil {
				return err
			}
		}
	}
	if errDownload != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("install the Temporal server: %w", errDownload)
		}
		i.progress("The Temporal server cannot be downloaded here, so Go builds it, once: about three minutes.")
		if err := i.try(ctx, "Building the Temporal server", i.build, scratch, fresh); err != nil {
			return fmt.Errorf("no Temporal server on this machine, and it can be neither downloaded (%v) nor built (%w); "+
				"install the temporal command line (https://docs.temporal.io/cli) so that it is on the PATH, "+
				"or set TEMPORAL_ADDRESS to a server that runs elsewhere", errDownload, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(i.program()), 0o755); err != nil {
		return fmt.Errorf("make a folder to keep the Temporal server in: %w", err)
	}
	if err := os.Rename(fresh, i.program()); err != nil {
		return fmt.Errorf("keep the Temporal server in the cache: %w", err)
	}
	return nil
}

// try goes one road, says every now and then that it is still going, and checks what came out.
func (i installer) try(ctx context.Context, what string, road func(ctx context.Context, scratch, program string) error, scratch, program string) error {
	began := time.Now()
	arrived := make(chan error, 1)
	go func() { arrived <- road(ctx, scratch, program) }()
	ticker := time.NewTicker(i.tick)
	defer ticker.Stop()
	for {
		select {
		case err := <-arrived:
			if err != nil {
				return err
			}
			return works(ctx, program)
		case <-ticker.C:
			i.progress(fmt.Sprintf("%s: %d s so far.", what, int(time.Since(began).Seconds())))
		}
	}
}

const scratchPrefix = "installing-"

// sweep removes what an installer that was killed has left. It must hold the lock, so no other is at work.
func (i installer) sweep() error {
	left, err := filepath.Glob(filepath.Join(i.folder, scratchPrefix+"*"))
	if err != nil {
		return fmt.Errorf("look for left-over installations: %w", err)
	}
	for _, folder := range left {
		if err := os.RemoveAll(folder); err != nil {
			return fmt.Errorf("remove a left-over installation: %w", err)
		}
	}
	return nil
}

func (i installer) failureNote() string { return filepath.Join(i.folder, "download-failed") }

// recentFailure is the error of the last download, if that was less than downloadRetry ago.
func (i installer) recentFailure() error {
	info, err := os.Stat(i.failureNote())
	if err != nil || time.Since(info.ModTime()) > downloadRetry {
		return nil
	}
	note, err := os.ReadFile(i.failureNote())
	if err != nil {
		return nil
	}
	return fmt.Errorf("it failed on %s: %s", info.ModTime().Format(time.DateTime), strings.TrimSpace(string(note)))
}

func (i installer) rememberFailure(failure error) error {
	fresh := i.failureNote() + ".new"
	if err := os.WriteFile(fresh, []byte(failure.Error()+"\n"), 0o644); err != nil {
		return fmt.Errorf("note that the download failed: %w", err)
	}
	if err := os.Rename(fresh, i.failureNote()); err != nil {
		return fmt.Errorf("note that the download failed: %w", err)
	}
	return nil
}

// lock waits until no other process installs into the folder. The system drops the lock of a process that dies.
func (i installer) lock(ctx context.Context) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(i.folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the Temporal server's folder: %w", err)
	}
	began, said := time.Now(), time.Now()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock the Temporal server's folder %s: %w", i.folder, err), file.Close())
		}
		pause := time.NewTimer(100 * time.Millisecond)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil, errors.Join(fmt.Errorf("wait for another process that installs the Temporal server: %w", context.Cause(ctx)), file.Close())
		case <-pause.C:
		}
		if time.Since(said) >= i.tick {
			said = time.Now()
			i.progress(fmt.Sprintf("Another process installs the Temporal server; waited %d s so far.", int(time.Since(began).Seconds())))
		}
	}
}
