package devserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// build builds the program with go install.
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
	output := &tail{}
	cmd := exec.CommandContext(ctx, compiler, "install",
		"-ldflags", "-s -w -X github.com/temporalio/cli/temporalcli.Version="+strings.TrimPrefix(Version, "v"),
		"github.com/temporalio/cli/cmd/temporal@"+Version)
	cmd.Dir = scratch
	cmd.Env = append(environment(), "GOBIN="+scratch, "GOFLAGS=", "GOWORK=off", "GOOS=", "GOARCH=", "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = output, output
	cmd.WaitDelay = time.Second
	guard.admit(cmd)
	cmd.Cancel = guard.killGroup // go starts compilers as further processes
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w:\n%s", strings.Join(cmd.Args[:2], " "), err, output.String())
	}
	if built := filepath.Join(scratch, "temporal"); built != program {
		return os.Rename(built, program)
	}
	return nil
}
