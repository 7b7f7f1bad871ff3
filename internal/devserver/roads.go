package devserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
)

// stallLimit ends a download that has brought nothing for so long: a machine without the way out fails soon, one with a
// slow line gets through.
const stallLimit = 20 * time.Second

// download lets the Temporal SDK fetch the program. The SDK offers this only as the first step of starting a server of
// its own; an address it cannot use stops it right after that step.
func download(ctx context.Context, scratch, program string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		cancelStalled(ctx, cancel, scratch)
	}()
	_, err := testsuite.StartDevServer(ctx, testsuite.DevServerOptions{
		CachedDownload: testsuite.CachedDownload{Version: Version, DestDir: scratch},
		ClientOptions:  &client.Options{HostPort: "download only", Logger: silent()},
	})
	stalled := context.Cause(ctx)
	cancel(nil)
	<-watched
	// The SDK always reports an error here; whether the file is there decides.
	if renamed := os.Rename(filepath.Join(scratch, "temporal-cli-"+Version), program); renamed == nil {
		return nil
	} else if !errors.Is(renamed, fs.ErrNotExist) {
		return fmt.Errorf("keep the downloaded Temporal server: %w", renamed)
	}
	if stalled != nil {
		err = stalled
	}
	return fmt.Errorf("download the Temporal server: %w", err)
}

// cancelStalled cancels when the files in a folder have not grown for stallLimit. It returns when ctx is done.
func cancelStalled(ctx context.Context, cancel context.CancelCauseFunc, folder string) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	size, grew := int64(0), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := folderSize(folder); now != size {
			size, grew = now, time.Now()
		}
		if time.Since(grew) > stallLimit {
			cancel(fmt.Errorf("nothing came for %s", stallLimit))
			return
		}
	}
}

func folderSize(folder string) int64 {
	var size int64
	entries, _ := os.ReadDir(folder) // a folder that cannot be read does not grow
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			size += info.Size()
		}
	}
	return size
}

// build lets Go make the program from source.
func build(ctx context.Context, scratch, program string) error {
	compiler, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("build the Temporal server: %w", err)
	}
	guard, err := newGuard()
	if err != nil {
		return err
	}
	defer guard.release()
	words := &tail{}
	cmd := exec.CommandContext(ctx, compiler, "install",
		"-ldflags", "-s -w -X github.com/temporalio/cli/temporalcli.Version="+strings.TrimPrefix(Version, "v"),
		"github.com/temporalio/cli/cmd/temporal@"+Version)
	cmd.Dir = scratch
	cmd.Env = append(environment(), "GOBIN="+scratch, "GOFLAGS=", "GOWORK=off", "GOOS=", "GOARCH=", "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = words, words
	cmd.WaitDelay = time.Second
	guard.admit(cmd)
	cmd.Cancel = guard.killGroup // Go's compilers are processes of their own
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w:\n%s", strings.Join(cmd.Args[:2], " "), err, words.String())
	}
	if built := filepath.Join(scratch, "temporal"); built != program {
		return os.Rename(built, program)
	}
	return nil
}
