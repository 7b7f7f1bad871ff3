// Package command runs the cobra commands of the programs that take no subcommands.
package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/internal/redact"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// UsageError is a wrong command line.
type UsageError struct{ error }

// Usagef returns a UsageError with a formatted message.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Execute runs a command without positional arguments and returns its exit code: 0, 1 for an error of the command, or 2
// for a wrong command line. It prints the error, without the secrets of URLs, to the command's standard error.
func Execute(ctx context.Context, c *cobra.Command, args []string) int {
	err := redact.Error(run(ctx, c, args))
	var usage UsageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		c.PrintErrf("%s: %v\nRun '%s --help' for usage.\n", c.Name(), err, c.Name())
		return exitUsage
	}
	c.PrintErrf("%s: %v\n", c.Name(), err)
	return exitFailed
}

func run(ctx context.Context, c *cobra.Command, args []string) error {
	c.SilenceErrors, c.SilenceUsage = true, true
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Usagef("unexpected argument %q", args[0])
		}
		return nil
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return UsageError{err} })
	c.SetArgs(args)
	return c.ExecuteContext(ctx)
}
