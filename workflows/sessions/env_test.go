package sessions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

// fakeHosts are the hosts of a pool, on a clock that skips time.
type fakeHosts struct {
	t       *testing.T
	env     *testsuite.TestWorkflowEnvironment
	runs    int
	workers []api.RosterWorker

	mu       sync.Mutex
	bound    map[string]map[string]string // by host and session
	warm     map[string]bool              // "worker session": the worker has what the session's calls need
	excluded map[string]time.Duration     // what was last asked for
	// known are the sessions in the store, bound or not.
	known map[string]bool
	steps []string // what happened, in order
	// failStep is asked before and after each step takes effect; an error ends the step there.
	failStep func(step, worker string, sessions []string, after bool) error
	// failHook is asked about each hook: an error is that session's failure.
	failHook func(step, worker, session string) *api.SessionFailure
}

// newFakeHosts places the workers t/0, t/1, … on these hosts.
func newFakeHosts(t *testing.T, hosts ...string) *fakeHosts {
	h := &fakeHosts{t: t, bound: map[string]map[string]string{}, warm: map[string]bool{},
		excluded: map[string]time.Duration{}, known: map[string]bool{},
		failStep: func(string, string, []string, bool) error { return nil },
		failHook: func(string, string, string) *api.SessionFailure { return nil }}
	for slot, host := range hosts {
		h.workers = append(h.workers, api.RosterWorker{Slot: slot, Host: host, State: lifecycle.Ready, InService: true})
		if h.bound[host] == nil {
			h.bound[host] = map[string]string{}
		}
	}
	return h
}

func (h *fakeHosts) hostOf(worker string) string {
	_, slot, err := api.ParseWorkerName(worker)
	require.NoError(h.t, err)
	return h.workers[slot].Host
}

// bindWarm binds sessions to a worker that has loaded them.
func (h *fakeHosts) bindWarm(worker string, sessions ...string) {
	for _, session := range sessions {
		h.bound[h.hostOf(worker)][session] = worker
		h.warm[worker+" "+session] = true
	}
}

// sessionIDs are n session ids.
func sessionIDs(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s%05d", prefix, i))
	}
	return ids
}

// counts says how many sessions each worker has.
func (h *fakeHosts) counts() map[string]int {
	counts := map[string]int{}
	for _, sessions := range h.bound {
		for _, worker := range sessions {
			counts[worker]++
		}
	}
	return counts
}

// bindings lists which worker has which session, and whether it has loaded it.
func (h *fakeHosts) bindings() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for host, sessions := range h.bound {
		for session, worker := range sessions {
			lines = append(lines, fmt.Sprintf("%s: %s on %s, warm %v", host, session, worker, h.warm[worker+" "+session]))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// execute executes a workflow until it completes, through as many runs as it takes.
func execute[R any](h *fakeHosts, name string, input R) (moves api.SessionMoves, err error) {
	err = workflowtest.Execute(h.t, name, input, func() *testsuite.TestWorkflowEnvironment {
		h.runs++
		h.set()
		return h.env
	}, nil)
	if err == nil {
		require.NoError(h.t, h.env.GetWorkflowResult(&moves))
	}
	return moves, err
}

// executed is execute of a workflow that succeeds.
func executed[R any](h *fakeHosts, name string, input R) api.SessionMoves {
	h.t.Helper()
	moves, err := execute(h, name, input)
	require.NoError(h.t, err)
	return moves
}

// fails is execute of a workflow that fails with a code, and an error that says each text.
func fails[R any](h *fakeHosts, code api.Code, name string, input R, says ...string) {
	h.t.Helper()
	_, err := execute(h, name, input)
	workflowtest.RequireCode(h.t, err, code)
	for _, text := range says {
		require.ErrorContains(h.t, err, text)
	}
}

// cancelAt cancels the workflow instead of the nth time that a step takes effect.
func (h *fakeHosts) cancelAt(nth int, step string) {
	h.failStep = func(now, _ string, _ []string, after bool) error {
		if now != step || after {
			return nil
		}
		if nth--; nth != 0 {
			return nil
		}
		h.env.CancelWorkflow()
		return temporal.NewCanceledError()
	}
}

func (h *fakeHosts) set() {
	env := workflowtest.NewEnvironment(nil, sdk.Options{})
	h.env = env
	env.RegisterWorkflowWithOptions(Migrate, workflow.RegisterOptions{Name: api.WorkflowMigrateSession})
	env.RegisterWorkflowWithOptions(Evacuate, workflow.RegisterOptions{Name: api.WorkflowEvacuateWorker})
	env.RegisterWorkflowWithOptions(Rebalance, workflow.RegisterOptions{Name: api.WorkflowRebalanceSessions})
	for name, do := range map[string]any{
		api.ActivityPoolRoster: h.roster, api.ActivitySessionBindings: h.listBindings, api.ActivityReleaseSessions: h.release,
		api.ActivityBindSessions: h.bind, api.ActivityUnbindSessions: h.unbind, api.ActivityLoadSessions: h.load,
		api.ActivityExcludeFromSessions: h.exclude,
	} {
		env.RegisterActivityWithOptions(do, activity.RegisterOptions{Name: name})
	}
}

// step takes effect under mu, with what may go wrong around it.
func (h *fakeHosts) step(ctx context.Context, name, worker string, sessions []string, effect func(host string)) error {
	host := strings.TrimPrefix(activity.GetInfo(ctx).TaskQueue, api.HostQueue(""))
	if worker != "" && h.hostOf(worker) != host {
		return temporal.NewNonRetryableApplicationError(fmt.Sprintf("%s of %s was asked of host %s", name, worker, host),
			"lost", nil)
	}
	h.mu.Lock()
	h.steps = append(h.steps, strings.TrimSpace(fmt.Sprintf("%s %s %s", name, worker, strings.Join(sessions, ","))))
	h.mu.Unlock()
	if err := h.failStep(name, worker, sessions, false); err != nil {
		return err
	}
	h.mu.Lock()
	effect(host)
	h.mu.Unlock()
	return h.failStep(name, worker, sessions, true)
}

func (h *fakeHosts) roster(context.Context, api.PoolRosterRequest) (api.PoolRosterResult, error) {
	return api.PoolRosterResult{Workers: h.workers}, h.failStep("roster", "", nil, false)
}

func (h *fakeHosts) listBindings(ctx context.Context,
	r api.SessionBindingsRequest) (result api.SessionBindingsResult, err error) {
	err = h.step(ctx, "look", "", nil, func(host string) {
		result.Counts, result.Unknown = map[string]int{}, r.Session != "" && !h.known[r.Session]
		for _, session := range slices.Sorted(maps.Keys(h.bound[host])) {
			worker := h.bound[host][session]
			result.Counts[worker]++
			if session == r.Session {
				result.Bound = worker
			}
			if worker == r.Worker && session > r.After {
				result.More = len(result.Page) == r.Limit
				if !result.More {
					result.Page = append(result.Page, session)
				}
			}
		}
		for worker, d := range h.excluded {
			if d > 0 && h.hostOf(worker) == host {
				result.Excluded = append(result.Excluded, worker)
			}
		}
	})
	return result, err
}

func (h *fakeHosts) hooks(ctx context.Context, step string, r api.SessionHooksRequest,
	warm bool) (result api.SessionHooksResult, err error) {
	err = h.step(ctx, step, r.Worker, r.Sessions, func(string) {
		for _, session := range r.Sessions {
			if failure := h.failHook(step, r.Worker, session); failure != nil {
				result.Failed = append(result.Failed, *failure)
				if failure.Code != api.CodeBusy {
					h.warm[r.Worker+" "+session] = false // half-way
				}
				continue
			}
			result.Called++
			h.warm[r.Worker+" "+session] = warm
		}
	})
	return result, err
}

func (h *fakeHosts) release(ctx context.Context, r api.SessionHooksRequest) (api.SessionHooksResult, error) {
	return h.hooks(ctx, "release", r, false)
}

func (h *fakeHosts) load(ctx context.Context, r api.SessionHooksRequest) (api.SessionHooksResult, error) {
	return h.hooks(ctx, "load", r, true)
}

func (h *fakeHosts) bind(ctx context.Context, r api.BindSessionsRequest) (result api.BindSessionsResult, err error) {
	err = h.step(ctx, "bind", r.To, r.Sessions, func(host string) {
		for _, session := range r.Sessions {
			if now := h.bound[host][session]; now != "" && now != r.From && now != r.To {
				result.Failed = append(result.Failed,
					api.SessionFailure{Session: session, Code: api.CodeSuperseded, Reason: "moved"})
				continue
			}
			h.bound[host][session] = r.To
		}
	})
	return result, err
}

func (h *fakeHosts) unbind(ctx context.Context, r api.UnbindSessionsRequest) error {
	return h.step(ctx, "unbind", r.Worker, r.Sessions, func(host string) {
		for _, session := range r.Sessions {
			if h.bound[host][session] == r.Worker {
				delete(h.bound[host], session)
			}
		}
	})
}

func (h *fakeHosts) exclude(ctx context.Context, r api.ExcludeFromSessionsRequest) error {
	return h.step(ctx, "keep off", r.Worker, nil, func(string) { h.excluded[r.Worker] = r.For.D() })
}

// permanentError is a failure that is not retried.
func permanentError(step string) error {
	return temporal.NewNonRetryableApplicationError(step+" is broken", string(api.CodeWorkerCrashed), nil)
}
