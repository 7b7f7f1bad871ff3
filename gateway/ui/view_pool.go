package ui

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/spec"
)

type poolView struct {
	Row      poolRow
	Status   api.PoolStatus
	Problem  *problem
	Command  string
	Workers  []workerRow
	Pager    pager
	Filter   string // of the roster: "", out, or a state
	Search   string
	Out      int // workers out of service
	Rollout  *rolloutView
	Spec     specView
	Actions  []actionLink
	Temporal string
	Sessions bool // the visitor may see them
	// MCPSessions counts the sessions of MCP clients.
	MCPSessions int
	// SamplesMissing and QueueMissing are why plots are missing; "" if none is.
	SamplesMissing, QueueMissing string
	// Hour is about its calls; nil if no gateway knows them.
	Hour *hourView
}

type rolloutView struct {
	*api.Rollout
	Total, Percent int
}

// workerRow is a worker as a roster and its page show it.
type workerRow struct {
	api.Worker
	Name    string
	Score   string
	MaxPct  int // memory, in percent of where the worker is rotated; 0 is not known
	Uptime  time.Duration
	Holder  string
	Reason  string
	FailsIn time.Duration // to a limit; 0 if no failure is in sight
	For     time.Duration // in its state
	OldSpec bool          // it runs an older spec than the pool has
	// Sparks are the memory and the calls a minute of its last minutes.
	Sparks [2]template.HTML
}

func (v *visit) poolPage() error {
	name := v.r.PathValue("pool")
	ctx := v.ctx()
	status := v.status(ctx, name)
	if status.at.IsZero() {
		return status.err
	}
	hosts := v.hosts(ctx)
	asked := []api.PoolWorkers{tempool.RosterOf(status.value, reportsOf(hosts.value))}
	if status.err == nil {
		tempool.AskWorkers(ctx, asked, v.state)
	}
	view := newPoolView(answer[api.PoolWorkers]{asked[0], status.at, status.err}, v.r, time.Now())
	var asking sync.WaitGroup
	asking.Go(func() { view.Spec = v.specs(status.value) })
	asking.Go(func() {
		view.Hour, view.QueueMissing = v.hour(name, queueGateways(status.value, hosts.value))
	})
	if slots, gateways := gatewaysOf(view.Workers); len(gateways) > 0 {
		found := v.sparks(name, slots, gateways)
		view.SamplesMissing = found.missing
		for i := range view.Workers {
			view.Workers[i].Sparks = found.of[view.Workers[i].Name]
		}
	}
	asking.Wait()
	view.Temporal = v.d.workflowURL(api.PoolWorkflowID(name))
	view.Sessions = v.principal.Has(access.Sessions)
	if v.principal.Has(access.Admin) && !status.value.Ended {
		view.Actions = actionsOn(aPool, name, "")
		if r := status.value.Rollout; r != nil && r.Halted == "" && len(r.Waiting) > 0 {
			view.Actions = append(actionsOn(aRollout, name, ""), view.Actions...)
		}
	}
	return v.render(http.StatusOK, "pool", page{Title: name, Nav: "fleet", Data: view,
		Trouble: slices.Concat(status.trouble("The pool does not answer"), hosts.trouble("The hosts' figures are missing")),
		Live: "pool=" + name +
			"&types=worker.transitioned,process.*,pool.*,lease.granted,lease.released,lease.expired,rotation.*"})
}

// newPoolView returns the page of a pool for a request, whose ?state=, ?q= and ?page= choose the rows.
func newPoolView(known answer[api.PoolWorkers], r *http.Request, now time.Time) poolView {
	row, trouble := newPoolRow(known, now)
	p := known.value
	query := r.URL.Query()
	view := poolView{
		Row: row, Status: p.Status, Problem: trouble, Command: p.Status.Spec.Pool.Program(), MCPSessions: p.MCPSessions,
		Filter: query.Get("state"), Search: strings.TrimSpace(query.Get("q")),
	}
	if p.Rollout != nil {
		total := p.Rollout.Done + len(p.Rollout.Waiting) + len(p.Rollout.Current)
		view.Rollout = &rolloutView{p.Rollout, total, p.Rollout.Done * 100 / max(1, total)}
	}
	rowOf := func(i int) workerRow { return newWorkerRow(p.Workers[i], p.SpecVersion, now) }
	shown := make([]int, 0, len(p.Workers))
	for i := range p.Workers {
		if !p.Workers[i].State.InService() {
			view.Out++
		}
		if view.Filter+view.Search == "" || view.shows(rowOf(i)) {
			shown = append(shown, i)
		}
	}
	view.Pager = newPager(r.URL, len(shown))
	for _, i := range paged(shown, view.Pager) {
		view.Workers = append(view.Workers, rowOf(i))
	}
	return view
}

// shows reports whether the filter and the search select a row.
func (p *poolView) shows(w workerRow) bool {
	switch p.Filter {
	case "", string(w.State):
	case "out":
		if w.State.InService() {
			return false
		}
	default:
		return false
	}
	if p.Search == "" {
		return true
	}
	text := strings.Join([]string{w.Name, string(w.State), w.Host, w.Holder, w.Reason}, " ")
	if w.Key != nil {
		text += " " + w.Key.Key
	}
	if w.MCPClient != nil {
		text += " " + w.MCPClient.Principal
	}
	text = strings.ToLower(text)
	return strings.Contains(text, strings.ToLower(p.Search))
}

// newWorkerRow is the row of a worker of a pool whose spec has this version.
func newWorkerRow(w api.Worker, version int64, now time.Time) workerRow {
	row := workerRow{
		Worker: w, Name: w.Worker, Uptime: time.Duration(w.UptimeS * float64(time.Second)),
		Reason:  cmp.Or(w.ReasonOutOfService(), strings.Join(w.Warnings, " ")),
		FailsIn: time.Duration(w.FailsInS * float64(time.Second)),
		OldSpec: w.SpecVersion != 0 && w.SpecVersion < version,
	}
	if w.Score != nil {
		row.Score = strconv.FormatFloat(*w.Score, 'f', 0, 64)
	}
	if w.MaxMemoryBytes > 0 {
		row.MaxPct = int(min(100, w.CurrentMemoryBytes*100/w.MaxMemoryBytes))
	}
	if w.Lease != nil {
		row.Holder = w.Lease.Holder
	}
	if !w.Since.IsZero() {
		row.For = max(0, now.Sub(w.Since))
	}
	return row
}

// specView is the spec of a pool as its page shows it, without secrets, and which workers have an older one.
type specView struct {
	Version  int64
	Text     string
	Versions []specVersion
}

// specVersion are the workers that have one version of the spec.
type specVersion struct {
	Version int64
	Workers []int // the first of them
	More    int
	Present bool
	// Changes are those from this version to the present one. Unknown is why they are not known; "" if they are.
	Changes []spec.Change
	Unknown string
}

const (
	// shownVersions bounds the older versions that are compared, shownOfVersion the workers that each names.
	shownVersions, shownOfVersion = 3, 12
)

// specs groups the workers of a pool by their spec. It asks one worker of each older version, if there are any, for the
// version's spec.
func (v *visit) specs(status api.PoolStatus) specView {
	view := specView{Version: status.SpecVersion, Text: status.Spec.WithoutSecrets().Text(), Versions: versionsOf(status)}
	if len(view.Versions) < 2 && (len(view.Versions) == 0 || view.Versions[0].Present) {
		view.Versions = nil
		return view
	}
	ctx, cancel := context.WithTimeout(v.ctx(), samplesTimeout)
	defer cancel()
	for i := range view.Versions {
		one := &view.Versions[i]
		if one.Present {
			continue
		}
		if i > shownVersions {
			one.Unknown = fmt.Sprintf("only the newest %d older versions are compared", shownVersions)
			continue
		}
		older, err := v.pool(status.Pool).WorkerSpec(ctx, one.Workers[0])
		switch {
		case err != nil:
			one.Unknown = "its worker does not report it: " + message(err)
		case older.Version != one.Version:
			one.Unknown = "its worker has begun with another one"
		default:
			for _, c := range spec.ChangesWithoutSecrets(older.Spec, status.Spec) {
				if c.RestartsWorkers() {
					one.Changes = append(one.Changes, c)
				}
			}
		}
	}
	return view
}

// versionsOf groups the workers of a pool by the version of their spec, the present one first.
func versionsOf(status api.PoolStatus) (versions []specVersion) {
	of := map[int64][]int{}
	for _, w := range status.Workers {
		if w.SpecVersion != 0 {
			of[w.SpecVersion] = append(of[w.SpecVersion], w.Slot)
		}
	}
	for _, version := range slices.SortedFunc(maps.Keys(of), func(a, b int64) int { return cmp.Compare(b, a) }) {
		slots := of[version]
		more := max(0, len(slots)-shownOfVersion)
		versions = append(versions, specVersion{Version: version, Workers: slots[:len(slots)-more], More: more,
			Present: version == status.SpecVersion})
	}
	return versions
}
