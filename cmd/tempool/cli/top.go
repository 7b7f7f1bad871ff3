package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
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

const (
	// topTimeout bounds one request of tempool top, below the usual --timeout: a screen should soon say that nobody
	// answers.
	topTimeout = 10 * time.Second
	// topLogLines are read of the log of one worker.
	topLogLines = 500
)

// topCommands are what the screen asks for. Each returns at once; its command's message is the answer.
type topCommands interface {
	rosters() tea.Cmd                // topRosters
	text(page topPage) tea.Cmd       // topText
	restart(worker string) tea.Cmd   // topRestarted
	wait(took time.Duration) tea.Cmd // topAsk, after the interval that follows a response which took so long
}

type (
	// topRosters is the answer to rosters. With an error, views may have some of the pools.
	topRosters struct {
		views []api.PoolWorkers
		at    time.Time
		took  time.Duration
		err   string
	}
	// topText is the text of a page.
	topText struct {
		page  topPage
		lines []string
		err   string
	}
	// topRestarted says whether a restart was accepted.
	topRestarted struct{ worker, err string }
	// topAsk says that it is time for the next question.
	topAsk struct{}
)

// topPage is what the screen shows of one worker.
type topPage struct {
	kind   topKind
	worker string
}

type topKind string

const (
	topWorker  topKind = "worker"
	topLogs    topKind = "log"
	topHistory topKind = "history"
)

// topRequests asks the control plane for the screen.
type topRequests struct {
	app   *app
	ctx   context.Context // that of the screen
	cp    controlPlane
	pools []string // the one pool, or none for all
}

// command runs ask as a command.
func (r topRequests) command(ask func(ctx context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(r.ctx, min(topTimeout, r.app.timeout))
		defer cancel()
		return ask(ctx)
	}
}

func (r topRequests) rosters() tea.Cmd {
	return r.command(func(ctx context.Context) tea.Msg {
		asked := r.app.now()
		views, err := poolOrAll(ctx, r.app, r.cp, r.pools, pool.Roster)
		tempool.AskWorkers(ctx, views, stateOf(r.cp))
		return topRosters{views: views, at: r.app.now(), took: r.app.now().Sub(asked), err: sentence(err)}
	})
}

func (r topRequests) wait(took time.Duration) tea.Cmd {
	interval := max(topInterval, time.Duration(float64(took)/topShare)-took)
	return tea.Tick(interval, func(time.Time) tea.Msg { return topAsk{} })
}

func (r topRequests) restart(worker string) tea.Cmd {
	return r.command(func(ctx context.Context) tea.Msg {
		pool, slot, _ := api.ParseWorkerName(worker) // of a roster
		_, err := r.cp.Pool(pool).Restart(ctx,
			api.RestartRequest{Worker: &slot, Reason: "requested in tempool top", By: operator()})
		return topRestarted{worker, sentence(err)}
	})
}

// text asks for the log, for the history, the newest transition first, or for the state as JSON.
func (r topRequests) text(page topPage) tea.Cmd {
	return r.command(func(ctx context.Context) tea.Msg {
		var text strings.Builder
		name, slot, _ := api.ParseWorkerName(page.worker) // of a roster
		var err error
		switch p := r.cp.Pool(name); {
		case page.kind == topLogs:
			err = p.Logs(ctx, tempool.LogOptions{Worker: &slot, Tail: topLogLines}, func(line api.LogLine) {
				fmt.Fprintf(&text, "%s #%d %s: %s\n", line.At.UTC().Format("15:04:05.000"), line.Incarnation, line.Stream,
					line.Text)
			})
		case page.kind == topHistory:
			var transitions []lifecycle.Transition
			if transitions, err = p.History(ctx, slot); err == nil {
				slices.Reverse(transitions)
				writeHistory(&text, transitions, nil, maxReasonRunes)
			}
		default:
			var state api.WorkerState
			if state, err = p.State(ctx, slot); err == nil {
				err = writeJSON(&text, state)
			}
		}
		lines := strings.FieldsFunc(text.String(), func(r rune) bool { return r == '\n' })
		return topText{page: page, lines: lines, err: sentence(err)}
	})
}

// sentence is what an error says to the user, in one line; "" without one.
func sentence(err error) string {
	if err == nil {
		return ""
	}
	return oneLine(message(err), 4*maxReasonRunes)
}
