package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tempool/tempool/api"
)

// topInterval is the least time between a response and the next request, and topShare how much of the time the screen
// waits for responses at most: on a large fleet it asks less often.
const (
	topInterval = time.Second / 3
	topShare    = 0.5
)

func (a *app) topCommand() *cobra.Command {
	c := a.controlPlaneCommand(withNames(&cobra.Command{
		Use:   "top [POOL]",
		Short: "Watch the workers of a pool, or of all pools, full-screen",
		Long: `Watch the workers of a pool, or of all pools, full-screen: sort and filter them, inspect one worker, its
log and its history, and restart it. The last line shows the keys.

It refreshes what tempool ps shows, a third of a second after each response, or later if responses take long.
While Temporal does not respond, it shows the error and the last state, and keeps trying. Without a terminal, and
with -o json, it prints what tempool ps prints, once.`,
		Example: `  tempool top
  tempool top python`,
	}), func(ctx context.Context, cp controlPlane, args []string) error {
		if !a.fullScreen() {
			return a.printRosters(ctx, cp, args)
		}
		return a.runTop(ctx, cp, args)
	})
	a.credentialFlags(c)
	return c
}

// fullScreen reports whether tempool can use the whole screen and read keys.
func (a *app) fullScreen() bool {
	in, isFile := a.in.(*os.File)
	return a.format == formatTable && a.outTerminal && isFile && term.IsTerminal(int(in.Fd())) &&
		os.Getenv("TERM") != "dumb"
}

// runTop shows the screen until the user leaves it or ctx ends.
func (a *app) runTop(ctx context.Context, cp controlPlane, args []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requests := topRequests{app: a, ctx: ctx, cp: cp, pools: args}
	_, err := tea.NewProgram(newTop(requests, strings.Join(args, "")), tea.WithContext(ctx), tea.WithInput(a.in),
		tea.WithOutput(a.out)).Run()
	if ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) || errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return api.Errorf(codeUnexpected, "the terminal failed: %w; tempool ps shows the same without one", err)
	}
	return nil
}
