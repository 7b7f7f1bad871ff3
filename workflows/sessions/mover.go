package sessions

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/workflows/internal/display"
	"github.com/tempool/tempool/workflows/internal/failure"
)

const (
	// sessionPage is the maximum number of sessions of one worker in a page.
	sessionPage = 500
	// maxTransfers bounds the transfers that run at one time.
	maxTransfers = 8
	// maxSkips bounds the skipped sessions in a result; further ones are only counted.
	maxSkips = 100
	// rosterTimeout bounds one query of the pool's roster.
	rosterTimeout = 20 * time.Second
)

// mover moves sessions and shows the progress. All session workflows use it.
type mover struct {
	pool     string
	title    string
	hookTime spec.Duration
	progress *api.SessionProgress
	pages    int // of sessions that this run has moved
}

// mayContinue reports whether the run continues as new before its next page; every, if positive, is after how many.
func (m *mover) mayContinue(ctx workflow.Context, every int) bool {
	due := workflow.GetInfo(ctx).GetContinueAsNewSuggested() || every > 0 && m.pages >= every
	return m.pages > 0 && due && ctx.Err() == nil // Temporal cancels one run, not the next
}

// newMover makes a mover, and serves the query progress. A refusal is an ApplicationError.
func newMover(ctx workflow.Context, pool, title string, hookTime time.Duration,
	progress *api.SessionProgress) (*mover, error) {
	if invalid := api.CheckPoolName(pool, api.CodeInvalid); invalid != nil {
		return nil, failure.Refusal(invalid)
	}
	if hookTime < 0 || hookTime > api.MaxHookTimeout {
		return nil, failure.Refusal(api.Errorf(api.CodeInvalid, "hook_timeout is %s; it must be from 0 (%s) to %s", hookTime,
			api.DefaultHookTimeout, api.MaxHookTimeout))
	}
	progress.Pool = pool
	if progress.Flows == nil {
		progress.Flows = []api.SessionFlow{}
	}
	m := &mover{pool: pool, title: title, hookTime: spec.Duration(cmp.Or(hookTime, api.DefaultHookTimeout)),
		progress: progress}
	err := workflow.SetQueryHandler(ctx, api.QueryProgress, func() (api.SessionProgress, error) { return *progress, nil })
	m.showProgress(ctx, "started")
	return m, err
}

// survey is the workers, their hosts, and the number of sessions of each.
type survey struct {
	workers     []api.RosterWorker
	counts      map[string]int
	closed      []string
	bound       []location // of the session that was asked for
	unknown     bool       // the session is in no store
	unreachable []string
}

func (m *mover) name(slot int) string { return api.WorkerName(m.pool, slot) }

// locate finds a worker of the pool by its slot. The error is a refusal.
func (m *mover) locate(s survey, slot int) (w api.RosterWorker, at location, err error) {
	for _, w := range s.workers {
		if w.Slot == slot {
			return w, location{m.name(slot), w.Host}, nil
		}
	}
	return w, at, failure.Refusal(api.Errorf(api.CodeWorkerNotFound,
		"pool %s has no worker %d; tempool ps %s lists those it has", m.pool, slot, m.pool))
}

// eligible are the workers that may take sessions.
func (m *mover) eligible(s survey) (takers []api.RosterWorker) {
	for _, w := range s.workers {
		if w.InService && w.Host != "" && !slices.Contains(s.closed, m.name(w.Slot)) &&
			!slices.Contains(s.unreachable, w.Host) {
			takers = append(takers, w)
		}
	}
	return takers
}

// survey reads the pool's workers, and from all their hosts the sessions; and to which workers session is bound, unless
// it is "". A host that does not take the activity has no agent, and so no bindings.
func (m *mover) survey(ctx workflow.Context, session string) (survey, error) {
	local := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: rosterTimeout, ScheduleToCloseTimeout: 3 * rosterTimeout, Summary: "workers of pool " + m.pool,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 200 * time.Millisecond, MaximumInterval: 2 * time.Second},
	})
	var roster api.PoolRosterResult
	if err := workflow.ExecuteLocalActivity(local, api.ActivityPoolRoster, api.PoolRosterRequest{Pool: m.pool}).Get(ctx,
		&roster); err != nil {
		return survey{}, stepError("find the workers of pool "+m.pool, err)
	}
	s := survey{workers: roster.Workers, counts: map[string]int{}, unknown: true}
	var hosts []string
	for _, w := range roster.Workers {
		if w.Host != "" && w.State.Live() && !slices.Contains(hosts, w.Host) {
			hosts = append(hosts, w.Host)
		}
	}
	answers := make([]api.SessionBindingsResult, len(hosts))
	failures := make([]error, len(hosts))
	group := workflow.NewWaitGroup(ctx)
	for i, host := range hosts {
		group.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer group.Done()
			failures[i] = onHost(host, api.ActivitySessionBindings, "sessions on host "+host,
				api.SessionBindingsRequest{Pool: m.pool, Session: session}).Execute(ctx).Get(ctx, &answers[i])
		})
	}
	group.Wait(ctx)
	for i, host := range hosts {
		if failure.NotStarted(failures[i]) {
			s.unreachable = append(s.unreachable, host)
			continue
		}
		if failures[i] != nil {
			return s, stepError("ask host "+host+" which sessions its workers have", failures[i])
		}
		for _, worker := range workflow.DeterministicKeys(answers[i].Counts) {
			s.counts[worker] += answers[i].Counts[worker]
		}
		s.closed = append(s.closed, answers[i].Excluded...)
		s.unknown = s.unknown && answers[i].Unknown
		if worker := answers[i].Bound; worker != "" {
			s.bound = append(s.bound, location{worker, host})
		}
	}
	return s, nil
}

// page lists sessions bound to a worker.
func (m *mover) page(ctx workflow.Context, at location, after string,
	limit int) (r api.SessionBindingsResult, err error) {
	err = onHost(at.host, api.ActivitySessionBindings, "sessions of "+at.worker,
		api.SessionBindingsRequest{Pool: m.pool, Worker: at.worker, After: after, Limit: limit}).Execute(ctx).Get(ctx, &r)
	if err != nil {
		err = stepError("list the sessions of "+at.worker, err)
	}
	return r, err
}

// transferAll runs transfers concurrently and records their results; moved is the number of sessions that each one
// moved.
func (m *mover) transferAll(ctx workflow.Context, transfers []transfer) (moved []int) {
	moved = make([]int, len(transfers))
	lasting, _ := workflow.NewDisconnectedContext(ctx)
	limit := workflow.NewSemaphore(ctx, maxTransfers)
	group := workflow.NewWaitGroup(lasting)
	for i, c := range transfers {
		group.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer group.Done()
			if limit.Acquire(ctx, 1) != nil { // cancelled before it started
				return
			}
			defer limit.Release(1)
			arrived, skips := m.transfer(ctx, c)
			moved[i] = len(arrived)
			m.recordTransfer(c, len(arrived), skips)
			m.showProgress(ctx, "running")
		})
	}
	group.Wait(lasting)
	return moved
}

// recordTransfer counts the result of a transfer. It ignores sessions that another workflow has moved meanwhile.
func (m *mover) recordTransfer(c transfer, moved int, skips []api.SessionSkip) {
	p := m.progress
	if moved > 0 {
		p.Moved += moved
		i := slices.IndexFunc(p.Flows, func(f api.SessionFlow) bool { return f.From == c.source() && f.To == c.to.worker })
		if i < 0 {
			i, p.Flows = len(p.Flows), append(p.Flows, api.SessionFlow{From: c.source(), To: c.to.worker})
		}
		p.Flows[i].Count += moved
	}
	for _, skip := range skips {
		if skip.Code == api.CodeSuperseded {
			continue
		}
		p.Skipped++
		if len(p.Skips) < maxSkips {
			p.Skips = append(p.Skips, skip)
		}
	}
}

// loadsOf is the input of policy for these workers.
func (m *mover) loadsOf(s survey, workers []api.RosterWorker, weight func(api.RosterWorker) int) []policy.SessionLoad {
	var loads []policy.SessionLoad
	for _, w := range workers {
		loads = append(loads, policy.SessionLoad{Worker: m.name(w.Slot), Sessions: s.counts[m.name(w.Slot)],
			Weight: weight(w)})
	}
	return loads
}

// finish shows the end of the last run, and returns the workflow's result.
func (m *mover) finish(ctx workflow.Context, err error) (api.SessionMoves, error) {
	if ctx.Err() != nil {
		err = temporal.NewCanceledError(m.progress.SessionMoves)
	}
	if err != nil {
		m.showProgress(ctx, "failed: "+display.Shorten(failure.Reason(err)))
	} else {
		m.showProgress(ctx, "done")
	}
	return m.progress.SessionMoves, err
}

// showProgress sets the page that the Web UI shows above the history. The query progress has the moves.
func (m *mover) showProgress(ctx workflow.Context, stand string) {
	p := m.progress
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("### %s: %s\n\n%d of %d moved, %d skipped\n\n%s\n", m.title, stand,
		p.Moved, max(p.Total, p.Moved), p.Skipped, p.Note))
}
