package ui

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/lifecycle"
)

const (
	// pageTimeout bounds the questions of one page.
	pageTimeout = 8 * time.Second
	// concurrentQuestions bounds those of one page at the same time.
	concurrentQuestions = 16
)

// host is a host, and whether its agent was stopped on purpose.
type host struct {
	tempool.Host
	left bool
}

// reportsOf is what the hosts last reported.
func reportsOf(hosts []host) (all tempool.Reports) {
	for _, host := range hosts {
		all.Add(host.ID, host.Heartbeat)
	}
	return all
}

// rosters are the pools with these names, as the hosts reported, and their workers out of service as they answer
// themselves. While Temporal does not answer, they are those of the last page that was viewed.
func (v *visit) rosters(ctx context.Context, names []string, hosts []host) []answer[api.PoolWorkers] {
	pools, reports := make([]answer[api.PoolWorkers], len(names)), reportsOf(hosts)
	sleep.Each(len(names), concurrentQuestions, func(i int) {
		one := v.status(ctx, names[i])
		one.value.Pool = names[i] // also without an answer
		pools[i] = answer[api.PoolWorkers]{tempool.RosterOf(one.value, reports), one.at, one.err}
	})
	pools = slices.DeleteFunc(pools,
		func(p answer[api.PoolWorkers]) bool { return p.value.Ended || errors.Is(p.err, api.ErrPoolNotFound) })
	var asked []api.PoolWorkers // shares the workers of pools
	for _, p := range pools {
		if p.err == nil {
			asked = append(asked, p.value)
		}
	}
	if ctx.Err() == nil {
		tempool.AskOutOfService(ctx, asked, v.state)
	}
	return pools
}

// requestTimeout is how long one question may take.
func (v *visit) requestTimeout() time.Duration {
	if v.d.config.Outage() > 0 {
		return briefTimeout
	}
	return askTimeout
}

// poolNames are the running pools that the visitor may use, sorted.
func (v *visit) poolNames(ctx context.Context) answer[[]string] {
	names := v.d.memos.names.get(ctx, freshFor, v.requestTimeout(), v.d.config.Fleet.ListPools)
	names.value = slices.DeleteFunc(slices.Sorted(slices.Values(names.value)),
		func(name string) bool { return !v.principal.MayUse(name) })
	return names
}

// hosts are those with a workflow.
func (v *visit) hosts(ctx context.Context) answer[[]host] {
	return v.d.memos.hosts.get(ctx, freshFor, v.requestTimeout(), v.askHosts)
}

// askHosts lists the hosts, and asks those without an agent why they have none.
func (v *visit) askHosts(ctx context.Context) ([]host, error) {
	found, err := v.d.config.Fleet.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	hosts := make([]host, len(found))
	sleep.Each(len(found), concurrentQuestions, func(i int) {
		if hosts[i].Host = found[i]; !found[i].HeardAt.IsZero() {
			return
		}
		if status, err := v.d.config.Fleet.HostStatus(ctx, found[i].ID); err == nil {
			hosts[i].left = status.State == api.HostLeft
		}
	})
	return hosts, nil
}

// status is the roster of a pool.
func (v *visit) status(ctx context.Context, name string) answer[api.PoolStatus] {
	one := v.d.memos.pools.of(name).get(ctx, freshFor, v.requestTimeout(), v.pool(name).Status)
	if errors.Is(one.err, api.ErrPoolNotFound) {
		v.d.memos.pools.forget(name)
	}
	return one
}

// state asks a worker for its state, until the deadline of ctx.
func (v *visit) state(ctx context.Context, pool string, slot int) (api.WorkerState, error) {
	fresh := unfollowedFreshFor
	if v.d.streams.follows(pool) {
		fresh = workerFreshFor
	}
	deadline, _ := ctx.Deadline()
	one := v.d.memos.workers.of(api.WorkerSource(api.WorkerName(pool, slot))).get(ctx, fresh, time.Until(deadline),
		func(ctx context.Context) (api.WorkerState, error) { return v.pool(pool).State(ctx, slot) })
	return one.value, one.err
}

// unreadable says that something of a gateway could not be read, and why. gateway begins a sentence.
func unreadable(what, gateway string, err error) string {
	text := what + ": " + message(err) + "."
	if code := api.CodeOf(err); code == api.CodeUnauthorized || code == api.CodeForbidden {
		text += " " + gateway + " requires a token: sign out, and sign in with a token that it knows."
	}
	return text
}

// message is the sentence of an error.
func message(err error) string {
	switch code := api.CodeOf(err); {
	case code == api.CodeDeadlineExceeded, errors.Is(err, context.DeadlineExceeded):
		return "Temporal, or the workflow, did not answer in time"
	case errors.Is(err, context.Canceled):
		return "Temporal does not answer"
	case code != "":
		return strings.TrimRight(api.MessageOf(err), ".")
	}
	return err.Error()
}

const (
	// freshFor is how long viewers share an answer of the control plane, workerFreshFor that of a worker about which no
	// event comes, and unfollowedFreshFor that of a worker while nobody follows the events of its pool.
	freshFor, workerFreshFor, unfollowedFreshFor = time.Second, 10 * time.Second, time.Second / 2
	// sparksFreshFor is how long viewers share the plots of a roster, whose samples are ten seconds apart, and mostSparks
	// bounds those that are kept, of which each has about 200 KB.
	sparksFreshFor, mostSparks = 5 * time.Second, 32
	// askTimeout bounds one question to the control plane, so that a page answers while Temporal does not, and
	// briefTimeout does if the agent knows that Temporal does not answer.
	askTimeout, briefTimeout = 4 * time.Second, time.Second
	// forgetAfter is how long an answer is kept that nobody requests.
	forgetAfter = 10 * time.Minute
)

// memo remembers an answer: viewers who come at the same time ask once, and the last good answer is shown while there
// is no new one.
type memo[T any] struct {
	mu    sync.Mutex // held during a question
	asked time.Time  // the end of the last question
	last  answer[T]
	used  time.Time // guarded by the lock of its memoSet
}

// answer is an answer of the control plane. With an error, value is the last good one, as of at; a zero at means that
// there was none.
type answer[T any] struct {
	value T
	at    time.Time
	err   error
}

// trouble says what is missing, and how old what is shown is; nothing without an error.
func (a answer[T]) trouble(what string) []string {
	if a.err == nil {
		return nil
	}
	what += ": " + message(a.err) + "."
	if a.at.IsZero() {
		return []string{what + " The agent asks again with each refresh; tempool doctor finds the cause."}
	}
	return []string{what + " This is as of " + a.at.UTC().Format("15:04:05") + " UTC."}
}

// get asks at most once in fresh, after a failure in freshFor, with a timeout, and not once ctx has ended.
func (m *memo[T]) get(ctx context.Context, fresh, timeout time.Duration,
	ask func(context.Context) (T, error)) answer[T] {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last.err != nil {
		fresh = min(fresh, freshFor)
	}
	if time.Since(m.asked) >= fresh {
		if err := ctx.Err(); err != nil {
			return answer[T]{m.last.value, m.last.at, err}
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout) // others wait for the answer, too
		value, err := ask(ctx)
		cancel()
		if m.asked, m.last.err = time.Now(), err; err == nil {
			m.last.value, m.last.at = value, m.asked
		}
	}
	return m.last
}

// memos are what all viewers share.
type memos struct {
	hosts   memo[[]host]
	names   memo[[]string]
	pools   memoSet[api.PoolStatus]  // by name
	workers memoSet[api.WorkerState] // by the source of their events, each of which drops its worker
	sparks  memoSet[sparks]          // by the question and whom it is asked for
}

// memoSet are memos by name. The zero value is ready.
type memoSet[T any] struct {
	most int // at which all are forgotten; 0 is no bound
	mu   sync.Mutex
	all  map[string]*memo[T]
}

// of is the memo of a name. Those that nobody asked for lately are forgotten.
func (m *memoSet[T]) of(name string) *memo[T] {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	found := m.all[name]
	if found == nil {
		maps.DeleteFunc(m.all, func(_ string, old *memo[T]) bool { return now.Sub(old.used) > forgetAfter })
		if m.most > 0 && len(m.all) >= m.most {
			clear(m.all)
		}
		found = &memo[T]{}
		if m.all == nil {
			m.all = map[string]*memo[T]{}
		}
		m.all[name] = found
	}
	found.used = now
	return found
}

// forget makes the next question ask, and keeps nothing of a name with which nobody should be able to fill the memory.
func (m *memoSet[T]) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, name)
}

// Fleet is what the dashboard asks of the control plane and of other agents. Errors are coded like those of
// tempool.Client, which FleetOf adapts.
type Fleet interface {
	Hosts(ctx context.Context) ([]tempool.Host, error)
	HostStatus(ctx context.Context, hostID string) (api.HostStatus, error)
	DrainHost(ctx context.Context, hostID, reason string) ([]tempool.Moved, error)
	UndrainHost(ctx context.Context, hostID string) error
	ListPools(ctx context.Context) ([]string, error)
	Events(ctx context.Context, o tempool.EventOptions) iter.Seq2[api.Event, error]
	Checkin(ctx context.Context, request api.CheckinRequest) error
	Pool(name string) Pool
}

// Pool is what it asks about one pool, as tempool.Pool answers it.
type Pool interface {
	Status(ctx context.Context) (api.PoolStatus, error)
	State(ctx context.Context, slot int) (api.WorkerState, error)
	WorkerSpec(ctx context.Context, slot int) (api.WorkerSpec, error)
	History(ctx context.Context, slot int) ([]lifecycle.Transition, error)
	Logs(ctx context.Context, o tempool.LogOptions, yield func(api.LogLine)) error
	RecentSamples(ctx context.Context, o tempool.SampleOptions) ([]api.RecentSamples, error)
	RecentQueue(ctx context.Context, o tempool.GatewayOptions) ([]api.RecentQueue, error)
	Sessions(ctx context.Context, after string, limit int) (*tempool.SessionList, error)
	Session(id string) Session
	ScaleTo(ctx context.Context, request api.ScaleRequest) (api.ScaleResult, error)
	Restart(ctx context.Context, request api.RestartRequest) (api.RestartResult, error)
	HaltRollout(ctx context.Context, control api.Control) (api.Rollout, error)
	Stop(ctx context.Context, reason string) (api.PoolStopResult, error)
	Signal(ctx context.Context, slot int, signal string, control api.Control) error
}

// Session is what it asks about one session, as tempool.Session answers it.
type Session interface {
	Get(ctx context.Context) (*tempool.SessionState, error)
	Delete(ctx context.Context) error
	Migrate(ctx context.Context, request api.MigrateSessionRequest) (*tempool.Migration, error)
}

// FleetOf adapts a client.
func FleetOf(c *tempool.Client) Fleet { return fleet{c} }

type fleet struct{ *tempool.Client }

func (f fleet) Pool(name string) Pool { return fleetPool{f.Client.Pool(name)} }

type fleetPool struct{ *tempool.Pool }

func (p fleetPool) Session(id string) Session { return p.Pool.Session(id) }
