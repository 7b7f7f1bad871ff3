package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/format"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
)

const (
	// shownAlerts and shownAdvice bound what a problem says.
	shownAlerts, shownAdvice = 4, 4
	// lateHeartbeat is after how long a host's heartbeat is late, and lowDisk what is too little space.
	lateHeartbeat = 6 * api.HostHeartbeatInterval
	lowDisk       = 1 << 30
)

type fleetView struct {
	Hosts      []hostRow
	Pools      []poolRow
	Problems   []problem
	Ready      int
	Size       int
	InFlight   int
	Waiting    int
	Memory     int64
	EveryPool  bool
	Stale      bool // it is what was known when Temporal last answered
	PoolsPager pager
}

// problem is one thing that is wrong, what it means and what to do.
type problem struct {
	Critical bool
	Subject  string
	Path     string // of the page about it
	Text     string
	Details  []detail
	More     int // details that are left out
	Advice   []string
	Runbooks []string // pages about it
}

type detail struct{ Subject, Path, Text string }

type hostRow struct {
	ID, State   string
	Tone        string
	Agent       *api.AgentReport
	Processes   int
	Memory      int64
	HeardAgo    time.Duration
	Pools       []poolCount
	MorePools   int
	ThisOne     bool
	CapacityPct int
}

type poolCount struct {
	Pool  string
	Count int
}

type poolRow struct {
	Name     string
	Status   string
	Tone     string
	Ready    int
	Size     int
	InFlight int
	Waiting  int // calls and clients
	Leased   int
	Memory   int64
	Hosts    int
	States   []stateCount
	Rollout  string
	Follows  string // the demand that its size follows
	Stale    bool
}

type stateCount struct {
	State lifecycle.State
	Count int
}

func (v *visit) fleetPage() error {
	ctx, cancel := context.WithTimeout(v.ctx(), pageTimeout)
	defer cancel()
	var both sync.WaitGroup
	var hosts answer[[]host]
	both.Go(func() { hosts = v.hosts(ctx) })
	names := v.poolNames(ctx)
	both.Wait()
	if names.err != nil {
		cancel() // nor would the pools answer
	}
	trouble := slices.Concat(hosts.trouble("The hosts could not be listed"),
		names.trouble("The pools could not be listed"))
	view := v.newFleetView(v.rosters(ctx, names.value, hosts.value), hosts.value, time.Now())
	view.Stale = len(trouble) > 0
	view.PoolsPager = newPager(v.r.URL, len(view.Pools))
	view.Pools = paged(view.Pools, view.PoolsPager)
	return v.render(http.StatusOK, "fleet",
		page{Title: "Fleet", Nav: "fleet", Trouble: trouble, Live: "types=worker.transitioned,process.*,pool.*,host.*",
			Data: view})
}

func (v *visit) newFleetView(pools []answer[api.PoolWorkers], hosts []host, now time.Time) fleetView {
	view := fleetView{EveryPool: v.principal.EveryPool()}
	for _, p := range pools {
		row, trouble := newPoolRow(p, now)
		view.Pools = append(view.Pools, row)
		view.Waiting += row.Waiting
		view.Ready, view.Size, view.InFlight, view.Memory =
			view.Ready+row.Ready, view.Size+row.Size, view.InFlight+row.InFlight, view.Memory+row.Memory
		if trouble != nil {
			view.Problems = append(view.Problems, *trouble)
		}
	}
	if view.EveryPool {
		for _, h := range hosts {
			row, trouble := newHostRow(h, v.d.config.HostID, now)
			view.Hosts = append(view.Hosts, row)
			if trouble != nil {
				view.Problems = append(view.Problems, *trouble)
			}
		}
	}
	sort.SliceStable(view.Problems, func(i, j int) bool { return view.Problems[i].Critical && !view.Problems[j].Critical })
	slices.SortStableFunc(view.Pools,
		func(a, b poolRow) int { return cmp.Compare(rankOfTone(b.Tone), rankOfTone(a.Tone)) })
	return view
}

func rankOfTone(tone string) int { return slices.Index([]string{"ok", "idle", "warn", "bad"}, tone) }

// newPoolRow is the row of a pool, and what is wrong with it.
func newPoolRow(known answer[api.PoolWorkers], now time.Time) (poolRow, *problem) {
	p := known.value
	row := poolRow{Name: p.Pool, Size: p.Size, Waiting: p.Waiting, Stale: known.err != nil}
	if known.at.IsZero() {
		row.Status, row.Tone = "no answer", "bad"
		return row, &problem{Critical: true, Subject: "pool " + p.Pool, Path: poolPath(p.Pool), Text: "It does not answer: " +
			message(known.err) + ".",
			Advice:   []string{"See whether an agent runs workflows: tempool doctor."},
			Runbooks: []string{policy.Runbook("no_answer")}}
	}
	report := policy.NewReport(p, now)
	for _, w := range p.Workers {
		row.Memory += w.CurrentMemoryBytes
		row.InFlight += w.InFlight
		if w.Lease != nil {
			row.Leased++
		}
	}
	o := report.Overview
	row.Ready, row.Hosts, row.States = o.Ready, len(o.Hosts), stateCounts(o.States)
	row.Status, row.Tone = string(o.Status), cmp.Or(tonesOfStatus[o.Status], "warn")
	if p.Status.ScaledToZero() {
		row.Status, row.Tone = "idle", "idle"
		report.Alerts = nil // nobody needs a worker
	}
	if r := p.Rollout; r != nil {
		row.Rollout = rolloutText(r)
	}
	if p.Scale != nil {
		row.Follows = p.Scale.Reason
	}
	return row, poolProblem(report)
}

// poolProblem joins the alerts of a pool, and what to do about them.
func poolProblem(report policy.Report) *problem {
	if len(report.Alerts) == 0 {
		return nil
	}
	one := &problem{Subject: "pool " + report.Pool, Path: poolPath(report.Pool), Text: report.Overview.Summary,
		Runbooks: report.Runbooks()}
	for _, alert := range report.Alerts {
		one.Critical = one.Critical || alert.Severity == policy.SeverityCritical
		if len(one.Details) == shownAlerts {
			one.More++
			continue
		}
		d := detail{Text: alert.Text}
		if alert.Worker != "" {
			d.Subject, d.Path = alert.Worker, workerPath(alert.Worker)
		}
		one.Details = append(one.Details, d)
	}
	for _, advice := range report.Recommendations {
		if advice != policy.NothingToDo && len(one.Advice) < shownAdvice {
			one.Advice = append(one.Advice, advice)
		}
	}
	if len(one.Advice) == 0 {
		one.Advice = []string{"Tempool is handling this. The page of a worker shows why: its timeline and the last lines " +
			"of its log."}
	}
	return one
}

func newHostRow(h host, hostID string, now time.Time) (hostRow, *problem) {
	row := hostRow{ID: h.ID, Agent: h.Heartbeat.Agent, Processes: len(h.Heartbeat.Processes), State: "up", Tone: "ok",
		ThisOne: h.ID == hostID}
	memory, _, counts := h.Heartbeat.Usage()
	row.Memory = memory
	for pool, n := range counts {
		row.Pools = append(row.Pools, poolCount{pool, n})
	}
	slices.SortFunc(row.Pools, func(a, b poolCount) int { return strings.Compare(a.Pool, b.Pool) })
	row.MorePools = max(0, len(row.Pools)-shownPools)
	row.Pools = row.Pools[:len(row.Pools)-row.MorePools]
	trouble := func(runbook, text, advice string) *problem {
		return &problem{Subject: "host " + h.ID, Text: text, Advice: []string{advice},
			Runbooks: []string{policy.Runbook(runbook)}}
	}
	if h.left {
		row.State, row.Tone = "stopped", "idle"
		return row, nil
	}
	if h.HeardAt.IsZero() {
		row.State, row.Tone = "no agent", "idle"
		return row, trouble("agents", "No agent is up on it.",
			"Restart its agent with --host-id "+h.ID+", or ignore this if the host is permanently gone.")
	}
	row.HeardAgo = max(0, now.Sub(h.HeardAt))
	if row.HeardAgo > lateHeartbeat {
		row.State, row.Tone = "not heard", "warn"
		return row, trouble("agents", "Its agent has sent no heartbeat for "+format.Duration(row.HeardAgo)+".",
			"Check the host and its connection to Temporal. Its workers move to other hosts once it counts as lost.")
	}
	agent := h.Heartbeat.Agent
	if agent == nil {
		return row, nil
	}
	if agent.Draining {
		row.State, row.Tone = "draining", "idle"
	}
	if agent.Capacity > 0 {
		row.CapacityPct = min(100, row.Processes*100/agent.Capacity)
	}
	if agent.DiskTotalBytes > 0 && agent.DiskFreeBytes < lowDisk {
		return row, trouble("disk", "Its disk has "+format.Count(agent.DiskFreeBytes)+" free; starts, logs and sessions "+
			"need space.", "Free space on the disk of the state folder, or move it with --state-dir.")
	}
	return row, nil
}

// shownPools bounds the pools that a host names.
const shownPools = 8

// tonesOfStatus are those of pools; that of all others is warn.
var tonesOfStatus = map[policy.Status]string{policy.StatusHealthy: "ok", policy.StatusDown: "bad"}

func rolloutText(r *api.Rollout) string {
	if r.Halted != "" {
		return "rolling restart " + r.Halted
	}
	return fmt.Sprintf("rolling restart, %d of %d done", r.Done, r.Done+len(r.Waiting)+len(r.Current))
}

// stateOrder is how states are listed.
var stateOrder = []lifecycle.State{
	lifecycle.Ready, lifecycle.Busy, lifecycle.Starting, lifecycle.Pending, lifecycle.Degraded, lifecycle.Suspended,
	lifecycle.Draining,
	lifecycle.Stopping, lifecycle.Failed, lifecycle.Killed, lifecycle.Stopped, lifecycle.Finished, lifecycle.Created,
}

func stateCounts(counts map[string]int) (list []stateCount) {
	for _, state := range stateOrder {
		if n := counts[string(state)]; n > 0 {
			list = append(list, stateCount{state, n})
		}
	}
	return list
}

func poolPath(pool string) string { return "/ui/pools/" + pool }

func workerPath(worker string) string {
	pool, slot, err := api.ParseWorkerName(worker)
	if err != nil {
		return ""
	}
	return poolPath(pool) + "/workers/" + strconv.Itoa(slot)
}
