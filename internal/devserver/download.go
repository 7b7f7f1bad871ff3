package devserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
)

// downloadTimeout bounds a download, also over a slow line; a machine without network fails sooner.
const downloadTimeout = 15 * time.Minute

// download downloads the program with the Temporal SDK. The SDK offers that only as the first step of its own server's
// start; an invalid address ends the start right after that step.
func download(ctx context.Context, scratch, program string) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	_, err := testsuite.StartDevServer(ctx, testsuite.DevServerOptions{
		CachedDownload: testsuite.CachedDownload{Version: Version, DestDir: scratch},
		ClientOptions:  &client.Options{HostPort: "download only", Logger: silent()},
	})
	// The SDK always returns an error here; the file decides.
	if renamed := os.Rename(filepath.Join(scratch, "temporal-cli-"+Version), program); renamed == nil {
		return nil
	} else if !errors.Is(renamed, fs.ErrNotExist) {
		return fmt.Errorf("move the downloaded Temporal server: %w", renamed)
	}
	return fmt.Errorf("download the Temporal server: %w", err)
}
