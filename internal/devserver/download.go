package devserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"

	"github.com/tempool/tempool/internal/sleep"
)

// stallTimeout ends a download without progress: a machine without network fails soon, one with a slow line does not.
const stallTimeout = 20 * time.Second

// download downloads the program with the Temporal SDK. The SDK offers that only as the first step of its own server's
// start; an invalid address ends the start right after that step.
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
	// The SDK always returns an error here; the file decides.
	if renamed := os.Rename(filepath.Join(scratch, "temporal-cli-"+Version), program); renamed == nil {
		return nil
	} else if !errors.Is(renamed, fs.ErrNotExist) {
		return fmt.Errorf("move the downloaded Temporal server: %w", renamed)
	}
	return fmt.Errorf("download the Temporal server: %w", cmp.Or(stalled, err))
}

// cancelStalled cancels when the files in a folder have not grown for stallTimeout. It returns at the end of ctx.
func cancelStalled(ctx context.Context, cancel context.CancelCauseFunc, folder string) {
	size, grew := int64(0), time.Now()
	for range sleep.Ticks(ctx.Done(), time.Second) {
		if now := folderSize(folder); now != size {
			size, grew = now, time.Now()
		}
		if time.Since(grew) > stallTimeout {
			cancel(fmt.Errorf("no data for %s", stallTimeout))
			return
		}
	}
}

func folderSize(folder string) int64 {
	var size int64
	entries, _ := os.ReadDir(folder) // an unreadable folder does not grow
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			size += info.Size()
		}
	}
	return size
}
