package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
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
	rosters() tea.Cmd              // topRosters
	text(page topPage) tea.Cmd     // topText
	restart(worker string) tea.Cmd // topRestarted
	wait() tea.Cmd                 // topAsk, after the interval
}

type (
	// topRosters is the answer to rosters. With an error, views may have some of the pools.
	topRosters struct {
		views []api.PoolWorkers
		at    time.Time
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
	app      *app
	ctx      context.Context
	cp       controlPlane
	pool     string // "" for all
	interval time.Duration

	mu      sync.Mutex
	ended   bool
	running sync.WaitGroup
}

// command runs ask as a command, unless the screen has gone.
func (r *topRequests) command(ask func(ctx context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		r.mu.Lock()
		if r.ended {
			r.mu.Unlock()
			return nil
		}
		r.running.Add(1)
		r.mu.Unlock()
		defer r.running.Done()
		ctx, cancel := context.WithTimeout(r.ctx, min(topTimeout, r.app.timeout))
		defer cancel()
		return ask(ctx)
	}
}

// end waits for what still runs, after the context has ended.
func (r *topRequests) end() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.running.Wait()
}

func (r *topRequests) rosters() tea.Cmd {
	return r.command(func(ctx context.Context) tea.Msg {
		views, err := poolOrAll(ctx, r.app, r.cp, r.pool, pool.Roster)
		return topRosters{views: views, at: r.app.now(), err: sentence(err)}
	})
}

func (r *topRequests) wait() tea.Cmd {
	return tea.Tick(r.interval, func(time.Time) tea.Msg { return topAsk{} })
}

func (r *topRequests) restart(worker string) tea.Cmd {
	return r.command(func(ctx context.Context) tea.Msg {
		pool, slot, err := api.ParseWorkerName(worker)
		if err == nil {
			_, err = r.cp.Pool(pool).Restart(ctx,
				api.RestartRequest{Worker: &slot, Reason: "requested in tempool top", By: operator()})
		}
		return topRestarted{worker, sentence(err)}
	})
}

func (r *topRequests) text(page topPage) tea.Cmd {
	return r.command(func(ctx context.Context) tea.Msg {
		text := topText{page: page}
		pool, slot, err := api.ParseWorkerName(page.worker)
		if err != nil {
			text.err = sentence(err)
			return text
		}
		switch p := r.cp.Pool(pool); page.kind {
		case topLogs:
			text.lines, err = topLog(ctx, p, slot)
		case topHistory:
			text.lines, err = topTransitions(ctx, p, slot)
		default:
			text.lines, err = topDetails(ctx, p, slot)
		}
		text.err = sentence(err)
		return text
	})
}

// topLog is the newest part of a worker's log.
func topLog(ctx context.Context, p pool, slot int) (lines []string, err error) {
	err = p.Logs(ctx, tempool.LogOptions{Worker: &slot, Tail: topLogLines}, func(line api.LogLine) {
		lines = append(lines, fmt.Sprintf("%s #%d %s: %s", line.At.UTC().Format("15:04:05.000"), line.Incarnation,
			line.Stream, line.Text))
	})
	return lines, err
}

func topTransitions(ctx context.Context, p pool, slot int) ([]string, error) {
	transitions, err := p.History(ctx, slot)
	if err != nil {
		return nil, err
	}
	return topTable(transitions), nil
}

// topTable is the table of tempool history, the newest transition first.
func topTable(transitions []lifecycle.Transition) []string {
	var text strings.Builder
	writeHistory(&text, transitions, nil, maxReasonRunes)
	lines := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	slices.Reverse(lines[1:])
	return lines
}

// topDetails is the state of a worker from its workflow, and its newest transitions.
func topDetails(ctx context.Context, p pool, slot int) ([]string, error) {
	state, err := p.State(ctx, slot)
	if err != nil {
		return nil, err
	}
	transitions, err := p.History(ctx, slot)
	var text strings.Builder
	writeDetails(&text, state)
	lines := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	if len(transitions) > 0 {
		lines = append(append(lines, ""), topTable(transitions[max(0, len(transitions)-10):])...)
	}
	return lines, err
}

// writeDetails writes the state of a worker, one fact per line.
func writeDetails(text *strings.Builder, s api.WorkerState) {
	fact := func(name, value string) {
		if value != "" {
			fmt.Fprintf(text, "%-14s %s\n", name, value)
		}
	}
	fact("State", fmt.Sprintf("%s since %s", s.State, s.Since.UTC().Format(time.RFC3339)))
	fact("Reason", oneLine(s.Reason, 4*maxReasonRunes))
	fact("Health", string(s.Health))
	if s.Score != nil {
		fact("Grade", fmt.Sprintf("%s, score %.0f", s.Grade, *s.Score))
	}
	fact("Incarnation", fmt.Sprint(s.Incarnation))
	fact("Host", s.Host)
	if s.PID > 0 {
		fact("PID", fmt.Sprint(s.PID))
	}
	if s.Lease != nil {
		fact("Lease", fmt.Sprintf("%s, held by %s until %s", s.Lease.ID, s.Lease.Holder,
			s.Lease.ExpiresAt.UTC().Format(time.RFC3339)))
	}
	fact("Spec version", fmt.Sprint(s.SpecVersion))
	fact("Last refusal", oneLine(s.LastRefusal, 4*maxReasonRunes))
	if s.Rotation != nil {
		fact("Rotation", oneLine(fmt.Sprintf("of #%d: %s", s.Rotation.Incarnation, s.Rotation.Reason), 4*maxReasonRunes))
	}
	if len(s.Limits) > 0 {
		fact("Limits", limitsCell(api.Worker{WorkerState: s}))
	}
}

// sentence is what an error says to the user, in one line; "" without one.
func sentence(err error) string {
	if err == nil {
		return ""
	}
	return oneLine(message(err), 4*maxReasonRunes)
}
