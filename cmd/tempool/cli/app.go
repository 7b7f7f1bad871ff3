// Package cli implements tempool, the command line. It sends requests to the control plane and to gateways and prints
// the answers, as tables for people or as JSON for programs; or it runs an agent. It makes no decisions about pools and
// workers.
package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/log"
	"golang.org/x/term"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/dev"
	"github.com/tempool/tempool/internal/logging"
)

// Exit codes of tempool.
const (
	ExitOK     = 0
	ExitFailed = 1 // the command failed; stderr says why and what to do
	ExitUsage  = 2 // the command line is wrong; no request was sent
)

// Default timeouts, which flags override, and the interval between two polls.
const (
	defaultTimeout      = 30 * time.Second
	defaultWait         = 2 * time.Minute
	defaultRolloutWait  = 15 * time.Minute
	defaultPollInterval = 250 * time.Millisecond
)

// app is one invocation of tempool.
type app struct {
	in           io.Reader
	out, err     io.Writer
	outTerminal  bool // out is a terminal
	errTerminal  bool // err is a terminal
	width        int  // of that terminal, in characters; 0 if unknown
	dial         dialFunc
	browse       func(url string) error // opens a browser, and fails where there is none
	runDev       func(ctx context.Context, o dev.Options) error
	pollInterval time.Duration
	now          func() time.Time

	format  outputFormat
	options tempool.Options
	timeout time.Duration // of one request

	running      bool   // the command line was accepted: later failures are no usage errors
	progressLine string // the progress line last shown
}

// Main executes one command line, given without the program's name, and returns the exit code. SIGINT and SIGTERM end
// it gracefully.
func Main(args ...string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Run(ctx, args, os.Stdout, os.Stderr)
}

// Run executes one command line, given without the program's name, and returns the exit code. It returns early, with
// ExitFailed, when ctx ends.
func Run(ctx context.Context, args []string, out, err io.Writer) int {
	a := &app{
		in: os.Stdin, out: out, err: err, outTerminal: logging.Terminal(out), errTerminal: logging.Terminal(err),
		dial: dial, browse: openBrowser, runDev: dev.Run, pollInterval: defaultPollInterval, now: time.Now,
	}
	if file, ok := err.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			a.width = width
		}
	}
	return a.run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) int {
	a.options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(a.err)
	ran, err := root.ExecuteContextC(ctx)
	a.endProgress()
	if err == nil {
		return ExitOK
	}
	if !a.running {
		err = usagef("%w; see %s --help", err, ran.CommandPath())
		if wantsJSON(args) { // the parser may have stopped before -o
			a.format = formatJSON
		}
	}
	return a.fail(err)
}

// localCommand makes c run without a control plane.
func (a *app) localCommand(c *cobra.Command, run func(ctx context.Context, args []string) error) *cobra.Command {
	a.defineArguments(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		a.running = true
		return run(cmd.Context(), args)
	}
	return c
}

// controlPlaneCommand makes c run with a connection to the control plane.
func (a *app) controlPlaneCommand(c *cobra.Command,
	run func(ctx context.Context, cp controlPlane, args []string) error) *cobra.Command {
	return a.localCommand(c, func(ctx context.Context, args []string) error {
		return a.withControlPlane(ctx, func(cp controlPlane) error { return run(ctx, cp, args) })
	})
}

// withControlPlane calls use with a connection to the control plane.
func (a *app) withControlPlane(ctx context.Context, use func(controlPlane) error) error {
	request, cancel := a.request(ctx)
	defer cancel()
	cp, err := a.dial(request, a.options)
	if err != nil {
		return err
	}
	defer cp.Close()
	return a.withAdvice(ctx, cp, use(cp))
}

// withAdvice adds what to do to failures whose cause the control plane does not know.
func (a *app) withAdvice(ctx context.Context, cp controlPlane, err error) error {
	if err == nil || len(a.options.Gateways) > 0 { // without Temporal
		return err
	}
	_, message := describe(err)
	var missing *serviceerror.NotFound
	switch code := api.CodeOf(err); {
	case code == api.CodeUnavailable && ctx.Err() == nil:
		if hint := a.noAgent(ctx, cp); hint != "" {
			return api.Errorf(code, "%s (%s)", hint, message)
		}
	case code == api.CodeWorkerNotFound && errors.As(err, &missing):
		return api.Errorf(code, "%s; run tempool ps to list the workers", message)
	}
	return err
}

func (a *app) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.timeout)
}

// send sends one request, bounded by --timeout.
func send[T any](ctx context.Context, a *app, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := a.request(ctx)
	defer cancel()
	return request(ctx)
}

// ask is send for a request with one argument.
func ask[R, T any](ctx context.Context, a *app, request func(context.Context, R) (T, error), argument R) (T, error) {
	return send(ctx, a, func(ctx context.Context) (T, error) { return request(ctx, argument) })
}

// operator names the user of tempool for workers' histories.
func operator() string {
	if current, err := user.Current(); err == nil && current.Username != "" {
		return current.Username
	}
	return "tempool" // a user without a name, as in many containers
}

// reasonWithOperator joins a reason and the user's name, for requests that have one field for both.
func reasonWithOperator(reason string) string {
	if reason == "" {
		return "requested by " + operator()
	}
	return reason + " (by " + operator() + ")"
}
