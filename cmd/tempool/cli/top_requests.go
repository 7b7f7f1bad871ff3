package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

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
		pool, slot, err := api.ParseWorkerName(worker)
		if err == nil {
			_, err = r.cp.Pool(pool).Restart(ctx,
				api.RestartRequest{Worker: &slot, Reason: "requested in tempool top", By: operator()})
		}
		return topRestarted{worker, sentence(err)}
	})
}

func (r topRequests) text(page topPage) tea.Cmd {
	return r.command(func(ctx context.Context) tea.Msg {
		text := topText{page: page}
		name, slot, err := api.ParseWorkerName(page.worker)
		switch p := r.cp.Pool(name); {
		case err != nil:
		case page.kind == topLogs:
			err = p.Logs(ctx, tempool.LogOptions{Worker: &slot, Tail: topLogLines}, func(line api.LogLine) {
				text.lines = append(text.lines, fmt.Sprintf("%s #%d %s: %s", line.At.UTC().Format("15:04:05.000"),
					line.Incarnation, line.Stream, line.Text))
			})
		case page.kind == topHistory:
			text.lines, err = topTransitions(ctx, p, slot)
		default:
			text.lines, err = topDetails(ctx, p, slot)
		}
		text.err = sentence(err)
		return text
	})
}

// topTransitions is the table of tempool history, the newest transition first.
func topTransitions(ctx context.Context, p pool, slot int) ([]string, error) {
	transitions, err := p.History(ctx, slot)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	writeHistory(&text, transitions, nil, maxReasonRunes)
	lines := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	slices.Reverse(lines[1:])
	return lines, nil
}

// topDetails is the state of a worker from its workflow, as JSON.
func topDetails(ctx context.Context, p pool, slot int) ([]string, error) {
	state, err := p.State(ctx, slot)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	err = writeJSON(&text, state)
	return strings.Split(strings.TrimSpace(text.String()), "\n"), err
}

// sentence is what an error says to the user, in one line; "" without one.
func sentence(err error) string {
	if err == nil {
		return ""
	}
	return oneLine(message(err), 4*maxReasonRunes)
}
