package sessions

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
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
	hookTime time.Duration
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
	m := &mover{pool: pool, title: title, hookTime: cmp.Or(hookTime, api.DefaultHookTimeout), progress: progress}
	err := workflow.SetQueryHandler(ctx, api.QueryProgress, func() (api.SessionProgress, error) { return *progress, nil })
	m.showProgress(ctx, "started")
	return m, err
}

// member is a worker of the pool.
type member struct {
	api.RosterWorker
	location
	sessions int  // bound to it
	present  bool // its process is on a host that answers, so it can release and receive sessions
	serves   bool // it is present, in service, and will stay
	closed   bool // it is excluded from sessions
}

// survey is the workers of the pool, and where the session that was asked for is.
type survey struct {
	workers []member
	bound   []location
	unknown bool // it is in no store
}

// find finds a worker by its name; it returns one that is not present if the pool has none.
func (s survey) find(worker string) (found member) {
	if i := slices.IndexFunc(s.workers, func(w member) bool { return w.worker == worker }); i >= 0 {
		found = s.workers[i]
	}
	return found
}

// locate finds a worker of the pool by its slot. The error is a refusal.
func (m *mover) locate(s survey, slot int) (member, error) {
	w := s.find(api.WorkerName(m.pool, slot))
	if w.worker == "" {
		return w, failure.Refusal(api.Errorf(api.CodeWorkerNotFound,
			"pool %s has no worker %d; tempool ps %s lists those it has", m.pool, slot, m.pool))
	}
	return w, nil
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
	s := survey{unknown: true}
	var hosts, unreachable []string
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
			unreachable = append(unreachable, host)
			continue
		}
		if failures[i] != nil {
			return s, stepError("ask host "+host+" which sessions its workers have", failures[i])
		}
		s.unknown = s.unknown && answers[i].Unknown
		if worker := answers[i].Bound; worker != "" {
			s.bound = append(s.bound, location{worker, host})
		}
	}
	for _, w := range roster.Workers {
		one := member{RosterWorker: w, location: location{api.WorkerName(m.pool, w.Slot), w.Host}}
		one.present = w.Host != "" && w.State.Live() && !slices.Contains(unreachable, w.Host)
		one.serves = one.present && w.InService
		for _, answer := range answers {
			one.sessions += answer.Counts[one.worker]
			one.closed = one.closed || slices.Contains(answer.Excluded, one.worker)
		}
		s.workers = append(s.workers, one)
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

// finish returns the workflow's result, and shows the end of the last run.
func (m *mover) finish(ctx workflow.Context, err error) (api.SessionMoves, error) {
	if workflow.IsContinueAsNewError(err) {
		return m.progress.SessionMoves, err
	}
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
