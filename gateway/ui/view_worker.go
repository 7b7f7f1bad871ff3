package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/lifecycle"
)

const (
	// shownLines are the newest lines of the log that the page shows, and shownLastLines those of the incarnation before.
	shownLines, shownLastLines = 200, 40
	// shownLineBytes bounds one line.
	shownLineBytes = 2 << 10
	// shownTransitions are the newest ones.
	shownTransitions = 60
)

type workerView struct {
	Pool    string
	Row     workerRow
	State   api.WorkerState // the zero value if the worker did not answer
	Process *api.ProcessReport
	Limits  []string
	Charts  []plot // of its samples
	// SamplesMissing is why plots are missing; "" if none is.
	SamplesMissing string
	Timeline       []episode
	Older          int // transitions that are left out
	Log            []api.LogLine
	LogError       string
	Last           []api.LogLine // the last output of the previous incarnation
	LastOf         int64
	Ended          *lifecycle.Transition // how the newest incarnation that ended on its own did
	Actions        []actionLink
	Temporal       string
}

// episode are the transitions of one incarnation, the newest first.
type episode struct {
	Incarnation int64
	Steps       []lifecycle.Transition
}

func (v *visit) workerPage() error {
	pool := v.r.PathValue("pool")
	slot, err := strconv.Atoi(v.r.PathValue("slot"))
	if err != nil || slot < 0 {
		return api.Errorf(api.CodeWorkerNotFound, "%q is not the number of a worker; see the pool's page",
			v.r.PathValue("slot"))
	}
	status := v.status(v.ctx(), pool)
	if status.at.IsZero() {
		return status.err
	}
	at := slices.IndexFunc(status.value.Workers, func(w api.RosterEntry) bool { return w.Slot == slot })
	if at < 0 {
		return api.Errorf(api.CodeWorkerNotFound, "pool %s has no worker %d", pool, slot)
	}
	status.value.Workers = status.value.Workers[at : at+1]
	view, p := v.workerFacts(status, pool, slot)
	view.Temporal = v.d.workflowURL(api.WorkerWorkflowID(pool, slot))
	if v.principal.Has(access.Admin) && !status.value.Ended {
		resting := view.Row.Entry.Resting && !slices.Contains(status.value.StoppedForMemory, slot) // by an operator
		view.Actions = workerActions(pool, slot, view.Row.State, resting, view.Row.Lease)
	}
	p.Title, p.Nav, p.Data = view.Row.Name, "fleet", view
	p.Live = "pool=" + pool + "&worker=" + strconv.Itoa(slot)
	return v.render(http.StatusOK, "worker", p)
}

// workerFacts asks for everything about a worker at the same time.
func (v *visit) workerFacts(status answer[api.PoolStatus], pool string, slot int) (workerView, page) {
	ctx, cancel := context.WithTimeout(v.ctx(), v.requestTimeout())
	defer cancel()
	view, p := workerView{Pool: pool}, page{}
	var hosts answer[[]host]
	var samples map[string]series
	var state api.WorkerState
	var history []lifecycle.Transition
	var stateErr, historyErr, logErr error
	var asking sync.WaitGroup
	asking.Go(func() { hosts = v.hosts(ctx) })
	limit := min(v.requestTimeout(), tempool.AskPatience)
	asking.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		state, stateErr = v.pool(pool).State(ctx, slot)
	})
	asking.Go(func() { history, historyErr = v.pool(pool).History(ctx, slot) })
	asking.Go(func() { samples, view.SamplesMissing = v.samples(ctx, pool, []int{slot}, nil) })
	asking.Go(func() { view.Log, logErr = v.log(ctx, pool, slot, false) })
	asking.Go(func() { view.Last, _ = v.log(ctx, pool, slot, true) }) // missing where the log is
	asking.Wait()

	reports := reportsOf(hosts.value)
	w := tempool.RosterOf(status.value, reports).Workers[0]
	process, reported := reports.Processes[w.Worker]
	if view.State = state; stateErr == nil {
		w.Adopt(state)
	} else if w.Error = tempool.NoAnswer(stateErr, limit); w.Error != "" {
		p.Trouble = append(p.Trouble, w.Worker+": "+w.ReasonOutOfService()+".")
	}
	view.Row = newWorkerRow(w, status.value.SpecVersion, time.Now())
	view.Row.Reason = w.Reason
	if reported && process.Incarnation == w.Incarnation {
		view.Process = &process
	}
	view.Charts = charts(samples[w.Worker], w.MaxMemoryBytes, time.Now())
	if historyErr != nil {
		p.Trouble = append(p.Trouble, "The timeline is missing: "+message(historyErr)+".")
	}
	if logErr != nil {
		view.LogError = logTrouble(logErr)
	}
	view.Timeline, view.Older = timeline(history)
	view.Ended = lastEnd(history)
	if len(view.Last) > 0 {
		view.LastOf = view.Last[len(view.Last)-1].Incarnation
	}
	for limit, by := range state.Limits {
		view.Limits = append(view.Limits, limit+" by "+by)
	}
	slices.Sort(view.Limits)
	return view, p
}

// log reads the newest lines of a worker's log, or the last ones of the incarnation that ended before.
func (v *visit) log(ctx context.Context, pool string, slot int, previous bool) (lines []api.LogLine, err error) {
	o := tempool.LogOptions{Worker: &slot, Previous: previous, Tail: shownLines}
	if previous {
		o.Tail = shownLastLines
	}
	var unreachable error
	o.Unreachable = func(_ string, err error) { unreachable = err }
	err = v.pool(pool).Logs(v.remote(ctx), o, func(line api.LogLine) {
		line.Text = cut(line.Text, shownLineBytes)
		lines = append(lines, line)
	})
	if err == nil && len(lines) == 0 { // else the other hosts hardly matter
		err = unreachable
	}
	return lines, err
}

// cut shortens a text to this many bytes, and marks that by an ellipsis.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

func logTrouble(err error) string {
	text := unreadable("The log cannot be read", "The gateway of its host", err)
	if api.CodeOf(err) == api.CodeUnavailable {
		text += " Check the gateway of its host with tempool doctor; tempool logs reads it from another machine."
	}
	return text
}

// timeline groups the newest transitions by incarnation, the newest first.
func timeline(history []lifecycle.Transition) (episodes []episode, older int) {
	older = max(0, len(history)-shownTransitions)
	for _, t := range slices.Backward(history[older:]) {
		if n := len(episodes); n == 0 || episodes[n-1].Incarnation != t.Incarnation {
			episodes = append(episodes, episode{Incarnation: t.Incarnation})
		}
		last := &episodes[len(episodes)-1]
		last.Steps = append(last.Steps, t)
	}
	return episodes, older
}

// lastEnd is the newest transition to an outcome that nobody asked for; nil if there is none.
func lastEnd(history []lifecycle.Transition) *lifecycle.Transition {
	for _, t := range slices.Backward(history) {
		if t.To == lifecycle.Failed || t.To == lifecycle.Killed {
			return &t
		}
	}
	return nil
}

// workflowURL is the page of a workflow in the Temporal Web UI; "" if its address is not known.
func (d *Dashboard) workflowURL(id string) string {
	if d.config.TemporalUI == "" {
		return ""
	}
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s", strings.TrimRight(d.config.TemporalUI, "/"),
		url.PathEscape(d.config.Namespace), url.PathEscape(id))
}
