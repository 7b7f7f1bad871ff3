// Package cli is the logic of ctl, the command that operators and scripts use: it asks Tempool's control plane and prints what
// it says, as tables for people or as JSON for programs. It decides nothing about pools and workers by itself.
package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/log"
	"golang.org/x/term"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/logging"
)

// Exit codes of ctl.
const (
	ExitOK     = 0
	ExitFailed = 1 // what was asked for did not come about; one sentence on stderr says what to do
	ExitUsage  = 2 // the command line cannot be understood; nothing was asked for
)

// Times a user can change by flags, and the pause between two looks at what is being waited for.
const (
	defaultTimeout      = 30 * time.Second
	defaultWait         = 2 * time.Minute
	defaultRolloutWait  = 15 * time.Minute
	defaultPollInterval = 250 * time.Millisecond
)

// app is one invocation of ctl.
type app struct {
	in          io.Reader
	out, err    io.Writer
	errTerminal bool // err is one
	// outTerminal says that out is one.
	outTerminal  bool
	width        int // of that terminal, in characters; 0 where it is not known
	dial         dialFunc
	readyz       readyzFunc
	pollInterval time.Duration // between two looks
	now          func() time.Time

	format  outputFormat
	options tempool.Options
	timeout time.Duration

	running      bool   // a command's own code has begun: what fails from here on is no usage error
	progressLine string // the line last shown
}

// Run carries out one command line, without the program's name, and returns the exit code. It returns early, with
// ExitFailed, when ctx ends.
func Run(ctx context.Context, args []string, out, err io.Writer) int {
	a := &app{in: os.Stdin, out: out, err: err, dial: dial, readyz: fetchControlPlane, pollInterval: defaultPollInterval, now: time.Now}
	a.errTerminal = logging.Terminal(err)
	if file, ok := err.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			a.width = width
		}
	}
	a.outTerminal = logging.Terminal(out)
	return a.run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) int {
	a.options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(a.err)
	command, err := root.ExecuteContextC(ctx)
	a.endProgress()
	if err == nil {
		return ExitOK
	}
	if !a.running {
		err = usagef("%w; see %s --help", err, command.CommandPath())
		if wantsJSON(args) { // the flag may stand behind the mistake, where it was not read
			a.format = formatJSON
		}
	}
	return a.fail(err)
}

// controlPlaneCommand has a command run with a connection to the control plane.
func (a *app) controlPlaneCommand(c *cobra.Command, run func(ctx context.Context, cp controlPlane, args []string) error) *cobra.Command {
	return a.localCommand(c, func(ctx context.Context, args []string) error {
		request, cancel := a.request(ctx)
		defer cancel()
		cp, err := a.dial(request, a.options)
		if err != nil {
			return err
		}
		defer cp.Close()
		return a.withAdvice(ctx, cp, run(ctx, cp, args))
	})
}

// withAdvice adds what to do to failures that the control plane itself cannot explain.
func (a *app) withAdvice(ctx context.Context, cp controlPlane, err error) error {
	if err == nil {
		return nil
	}
	_, sentence := describe(err)
	var missing *serviceerror.NotFound
	switch code := api.CodeOf(err); {
	case code == api.CodeUnavailable && ctx.Err() == nil:
		request, cancel := a.request(ctx)
		defer cancel()
		if agents, failed := cp.Agents(request, ""); failed == nil && agents.Workflows == 0 {
			return api.Errorf(code, "%s (%s)", agentHint(agents, a.options.Address, ""), sentence)
		}
	case code == api.CodeWorkerNotFound && errors.As(err, &missing):
		return api.Errorf(code, "%s; ctl ps lists the workers there are", sentence)
	}
	return err
}

// localCommand has a command run that needs no control plane.
func (a *app) localCommand(c *cobra.Command, run func(ctx context.Context, args []string) error) *cobra.Command {
	c.RunE = func(cmd *cobra.Command, args []string) error {
		a.running = true
		return run(cmd.Context(), args)
	}
	return c
}

// request bounds one exchange with the control plane.
func (a *app) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.timeout)
}
