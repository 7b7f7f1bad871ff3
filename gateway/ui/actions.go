package ui

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// maxReasonRunes bounds the reason that an operator gives, which becomes part of histories.
const maxReasonRunes = 500

// action is something that an operator does to a pool or a worker. It asks once: its link leads to a page with the form that does it.
type action struct {
	name, label string
	danger      bool
	ofWorker    bool
	noReason    bool
	asks        string // the question, with %s for what it is about
	means       string // what will happen
	done        string // the notice afterwards
	do          func(ctx context.Context, v *visit, t actionTarget) error
}

// actionTarget is what an action is done to.
type actionTarget struct {
	Pool   string
	Slot   *int
	Lease  string
	Size   string
	Reason string
	By     string
}

// Subject names the pool or the worker.
func (t actionTarget) Subject() string {
	if t.Slot == nil {
		return "pool " + t.Pool
	}
	return "worker " + api.WorkerName(t.Pool, *t.Slot)
}

// Back is the page that an action returns to.
func (t actionTarget) Back() string {
	if t.Slot == nil {
		return poolPath(t.Pool)
	}
	return workerPath(api.WorkerName(t.Pool, *t.Slot))
}

func signal(name string) func(context.Context, *visit, actionTarget) error {
	return func(ctx context.Context, v *visit, t actionTarget) error {
		return v.d.config.Fleet.Signal(ctx, t.Pool, *t.Slot, name, api.Control{Reason: t.Reason, By: t.By})
	}
}

func restart(ctx context.Context, v *visit, t actionTarget) error {
	return v.d.config.Fleet.Restart(ctx, t.Pool, api.RestartRequest{Worker: t.Slot, Reason: t.Reason, By: t.By})
}

var actions = []action{
	{
		name: "scale", label: "Scale…", noReason: true, asks: "How many workers shall %s have?", done: "The pool has recorded the size; its workers follow.",
		means: "Further workers start where hosts have room. Surplus workers drain first, and then leave. A pool that follows the demand goes on from there.",
		do:    scale,
	},
	{
		name: "restart-all", label: "Restart…", asks: "Restart all workers of %s?", done: "The rolling restart has begun.",
		means: "The workers restart in turn, at most rotation.max_unavailable at a time. Each finishes its calls first. Workers that were stopped or gave up start again, too.",
		do:    restart,
	},
	{
		name: "stop-pool", label: "Stop pool…", danger: true, asks: "Stop %s?", done: "The pool is stopping.",
		means: "Its workers drain and end, and the pool with them. ctl pool start starts it again.",
		do: func(ctx context.Context, v *visit, t actionTarget) error {
			return v.d.config.Fleet.StopPool(ctx, t.Pool, strings.TrimSpace(t.Reason+" (by "+t.By+")"))
		},
	},
	{
		name: "restart", label: "Restart…", ofWorker: true, asks: "Restart %s?", done: "The restart was requested.",
		means: "It finishes its calls within rotation.drain_timeout, and starts again as a new incarnation.", do: restart,
	},
	{
		name: "drain", label: "Drain…", ofWorker: true, asks: "Drain %s?", done: "The worker was asked to drain.",
		means: "It takes no new lease and finishes its calls; then its process stops. It stays stopped until a restart.", do: signal(api.SignalDrain),
	},
	{
		name: "suspend", label: "Suspend…", ofWorker: true, asks: "Suspend %s?", done: "The worker was asked to suspend.",
		means: "It takes no new lease and no new call, and keeps its process and memory. What has not ended within rotation.drain_timeout is ended: calls in flight are cut, and the holder of a lease is fenced.", do: signal(api.SignalSuspend),
	},
	{
		name: "resume", label: "Resume…", ofWorker: true, asks: "Resume %s?", done: "The worker was asked to resume.",
		means: "It goes back into service with the process that it has.", do: signal(api.SignalResume),
	},
	{
		name: "release", label: "Release lease…", ofWorker: true, danger: true, asks: "Release the lease on %s?", done: "The lease was released.",
		means: "Its holder loses the worker at once; what it calls next under the lease fails with lease_fenced.", do: release,
	},
	{
		name: "stop", label: "Stop…", ofWorker: true, danger: true, asks: "Stop %s now?", done: "The worker was asked to stop.",
		means: "Its process ends without waiting for calls in flight. It stays stopped until a restart.", do: signal(api.SignalStop),
	},
}

func scale(ctx context.Context, v *visit, t actionTarget) error {
	size, err := strconv.Atoi(strings.TrimSpace(t.Size))
	if err != nil || size < 1 {
		return api.Errorf(api.CodeInvalid, "%q is not a number of workers; give 1 or more", t.Size)
	}
	return v.d.config.Fleet.Scale(ctx, t.Pool, api.ScaleRequest{Size: size})
}

func release(ctx context.Context, v *visit, t actionTarget) error {
	ref, err := api.ParseLeaseID(t.Lease)
	if err != nil {
		return err
	}
	if ref.Pool != t.Pool || ref.Slot != *t.Slot {
		return api.Errorf(api.CodeInvalid, "lease %s is not on %s", t.Lease, t.Subject())
	}
	state, err := v.d.config.Fleet.State(ctx, t.Pool, *t.Slot)
	if err != nil {
		return err
	}
	if state.Lease == nil || state.Lease.ID != t.Lease {
		return api.Errorf(api.CodeLeaseFenced, "lease %s was released or has expired meanwhile; there is nothing to do", t.Lease)
	}
	outcome := api.CheckinRequest{LeaseID: t.Lease, Outcome: api.OutcomeOK}
	if t.Reason != "" {
		outcome.Outcome, outcome.Error = api.OutcomeError, "released by "+t.By+": "+t.Reason
	}
	return v.d.config.Fleet.Checkin(ctx, outcome)
}

// actionLink leads to the question of an action.
type actionLink struct {
	Label, Path string
	Danger      bool
}

func poolActions(pool string) (links []actionLink) {
	for _, a := range actions {
		if !a.ofWorker {
			links = append(links, actionLink{a.label, poolPath(pool) + "/do/" + a.name, a.danger})
		}
	}
	return links
}

// workerActions are those that make sense for a worker in a state.
func workerActions(pool string, slot int, state lifecycle.State, resting bool, lease *api.Lease) (links []actionLink) {
	offered := map[string]bool{
		"restart": true, "drain": !resting, "stop": !resting, "resume": state == lifecycle.Suspended, "release": lease != nil,
		"suspend": !resting && slices.Contains([]lifecycle.State{lifecycle.Ready, lifecycle.Busy, lifecycle.Degraded}, state),
	}
	for _, a := range actions {
		if !a.ofWorker || !offered[a.name] {
			continue
		}
		query := url.Values{"worker": {strconv.Itoa(slot)}}
		if a.name == "release" {
			query.Set("lease", lease.ID)
		}
		links = append(links, actionLink{a.label, poolPath(pool) + "/do/" + a.name + "?" + query.Encode(), a.danger})
	}
	return links
}

// asked is the action that a request names, and its target.
func (v *visit) asked() (action, actionTarget, error) {
	t := actionTarget{
		Pool: v.r.PathValue("pool"), Lease: v.r.FormValue("lease"), Size: v.r.FormValue("size"),
		Reason: strings.TrimSpace(v.r.FormValue("reason")), By: v.principal.Name + " in the dashboard",
	}
	if runes := []rune(t.Reason); len(runes) > maxReasonRunes {
		return action{}, t, api.Errorf(api.CodeInvalid, "the reason has %d characters; at most %d are allowed", len(runes), maxReasonRunes)
	}
	at := slices.IndexFunc(actions, func(a action) bool { return a.name == v.r.PathValue("action") })
	if at < 0 {
		return action{}, t, errNoPage
	}
	if actions[at].ofWorker {
		slot, err := strconv.Atoi(v.r.FormValue("worker"))
		if err != nil || slot < 0 {
			return action{}, t, api.Errorf(api.CodeWorkerNotFound, "%q is not the number of a worker", v.r.FormValue("worker"))
		}
		t.Slot = &slot
	}
	return actions[at], t, nil
}

type confirmView struct {
	Action   string
	Label    string
	Question string
	Means    string
	Danger   bool
	Reason   bool
	Target   actionTarget
	Workers  int // the size of the pool, to scale it
	Error    string
}

// confirmPage asks whether an action shall be done.
func (v *visit) confirmPage() error {
	a, t, err := v.asked()
	if err != nil {
		return err
	}
	return v.confirm(http.StatusOK, a, t, "")
}

func (v *visit) confirm(status int, a action, t actionTarget, failure string) error {
	view := confirmView{
		Action: a.name, Label: strings.TrimSuffix(a.label, "…"), Question: strings.Replace(a.asks, "%s", t.Subject(), 1), Means: a.means, Danger: a.danger,
		Reason: !a.noReason, Target: t, Error: failure,
	}
	if a.name == "scale" {
		view.Workers = max(1, v.status(v.ctx(), t.Pool).value.Size)
	}
	return v.render(status, "confirm", page{Title: view.Label + " " + t.Subject(), Nav: "fleet", Data: view})
}

// act does an action and returns to the page of its target.
func (v *visit) act() error {
	a, t, err := v.asked()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(v.ctx(), actTimeout)
	defer cancel()
	if err := a.do(ctx, v, t); err != nil {
		return v.confirm(statusOf(err), a, t, "This was not done: "+message(err)+".")
	}
	v.d.config.Logger.Info("done in the dashboard", "action", a.name, "target", t.Subject(), "by", v.principal.Name, "reason", t.Reason)
	v.d.memos.forget(t.Pool) // it is asked anew
	http.Redirect(v.w, v.r, t.Back()+"?done="+a.name, http.StatusSeeOther)
	return nil
}

// noticeOf is what the page after an action says of it.
func noticeOf(r *http.Request) string {
	for _, a := range actions {
		if a.name == r.URL.Query().Get("done") {
			return a.done
		}
	}
	return ""
}
