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

// module requires the program and the SQLite driver that it is built with. Go takes all other modules as the two
// require them, and checks each with the checksum database.
const module = `module temporal

go 1.26.0

require (
	github.com/temporalio/cli ` + Version + `
	modernc.org/sqlite ` + Driver + `
)
`

// build builds the program with Go.
func build(ctx context.Context, scratch, program string) error {
	compiler, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("build the Temporal server: %w", err)
	}
	folder, err := os.MkdirTemp(scratch, "module-")
	if err != nil {
		return fmt.Errorf("create the folder of the Temporal server's module: %w", err)
	}
	defer os.RemoveAll(folder)
	if err := os.WriteFile(filepath.Join(folder, "go.mod"), []byte(module), 0o600); err != nil {
		return fmt.Errorf("write the Temporal server's module: %w", err)
	}
	output := &tail{}
	built := filepath.Join(folder, "temporal") // not in scratch, where a build whose starter was killed would write, too
	cmd := exec.CommandContext(ctx, compiler, "build", "-mod=mod", "-o", built,
		"-ldflags", "-s -w -X github.com/temporalio/cli/temporalcli.Version="+strings.TrimPrefix(Version, "v"),
		"github.com/temporalio/cli/cmd/temporal")
	cmd.Dir = folder
	cmd.Env = append(environment(), "GOFLAGS=", "GOWORK=off", "GOOS=", "GOARCH=", "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go waits for its compilers
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w:\n%s", strings.Join(cmd.Args[:2], " "), err, output.String())
	}
	return os.Rename(built, program)
}
