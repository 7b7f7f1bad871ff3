package ui

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/lifecycle"
)

// maxReasonRunes bounds the reason that an operator gives, which becomes part of histories.
const maxReasonRunes = 500

// action is something that an operator does to a pool, a worker, a session or a host. It asks once: its link leads to a
// page with the form that does it.
type action struct {
	Name, label string
	Danger      bool
	of          kind
	NoReason    bool
	asks        string // the question, with %s for what it is about
	Means       string // what will happen
	done        string // the notice afterwards
	do          func(ctx context.Context, v *visit, t actionTarget) error
}

// kind is what an action is done to.
type kind int

const (
	aPool    kind = iota
	aRollout      // of a pool
	aWorker
	aSession
	aHost
)

// actionTarget is what an action is done to.
type actionTarget struct {
	Pool    string
	Slot    *int
	Session string
	Host    string
	Lease   string
	Size    string
	To      string // the worker that a session is moved to
	Reason  string
	By      string
}

// Subject names the pool, the worker, the session or the host.
func (t actionTarget) Subject() string {
	switch {
	case t.Host != "":
		return "host " + t.Host
	case t.Session != "":
		return "session " + t.Session
	case t.Slot == nil:
		return "pool " + t.Pool
	}
	return "worker " + api.WorkerName(t.Pool, *t.Slot)
}

// Back is the page that an action returns to.
func (t actionTarget) Back() string {
	switch {
	case t.Host != "":
		return "/ui/"
	case t.Session != "":
		return poolPath(t.Pool) + "/sessions/" + url.PathEscape(t.Session)
	case t.Slot == nil:
		return poolPath(t.Pool)
	}
	return workerPath(api.WorkerName(t.Pool, *t.Slot))
}

// attributed is the reason with the one who gave it; it is never empty.
func (t actionTarget) attributed() string { return strings.TrimSpace(t.Reason + " (by " + t.By + ")") }

func signal(name string) func(context.Context, *visit, actionTarget) error {
	return func(ctx context.Context, v *visit, t actionTarget) error {
		return v.pool(t.Pool).Signal(ctx, *t.Slot, name, api.Control{Reason: t.Reason, By: t.By})
	}
}

func restart(ctx context.Context, v *visit, t actionTarget) error {
	_, err := v.pool(t.Pool).Restart(ctx, api.RestartRequest{Worker: t.Slot, Reason: t.Reason, By: t.By})
	return err
}

var actions = []action{
	{
		Name: "scale", label: "Scale…", NoReason: true, asks: "How many workers should %s have?",
		done: "The pool has recorded the size; its workers follow.",
		Means: "Additional workers start where hosts have capacity. Surplus workers drain before they stop. A pool that " +
			"follows demand continues from there.",
		do: scale,
	},
	{
		Name: "restart-all", label: "Restart…", asks: "Restart all workers of %s?", done: "The rolling restart has begun.",
		Means: "The workers restart in turn, at most rotation.max_unavailable at a time. Each finishes its calls first. " +
			"Workers that were stopped or gave up start again, too.",
		do: restart,
	},
	{
		Name: "halt-rollout", label: "Halt rolling restart…", of: aRollout, asks: "Halt the rolling restart of %s?",
		done: "The rolling restart is halted.",
		Means: "Workers that restart now go on. The others keep their process and spec until the next restart or apply of " +
			"the pool.",
		do: func(ctx context.Context, v *visit, t actionTarget) error {
			_, err := v.pool(t.Pool).HaltRollout(ctx, api.Control{Reason: t.Reason, By: t.By})
			return err
		},
	},
	{
		Name: "stop-pool", label: "Stop pool…", Danger: true, asks: "Stop %s?", done: "The pool is stopping.",
		Means: "Its workers drain and stop, then the pool ends. tempool pool start starts it again.",
		do: func(ctx context.Context, v *visit, t actionTarget) error {
			_, err := v.pool(t.Pool).Stop(ctx, t.attributed())
			return err
		},
	},
	{
		Name: "restart", label: "Restart…", of: aWorker, asks: "Restart %s?", done: "The restart was requested.",
		Means: "It finishes its calls within rotation.drain_timeout, and starts again as a new incarnation.", do: restart,
	},
	{
		Name: "drain", label: "Drain…", of: aWorker, asks: "Drain %s?", done: "The worker was asked to drain.",
		Means: "It takes no new lease and finishes its calls; then its process stops. It stays stopped until a restart.",
		do:    signal(api.SignalDrain),
	},
	{
		Name: "suspend", label: "Suspend…", of: aWorker, asks: "Suspend %s?", done: "The worker was asked to suspend.",
		Means: "It takes no new lease and no new call, and keeps its process and memory. After rotation.drain_timeout, " +
			"calls in flight are cut, and the holder of a lease is fenced.", do: signal(api.SignalSuspend),
	},
	{
		Name: "resume", label: "Resume…", of: aWorker, asks: "Resume %s?", done: "The worker was asked to resume.",
		Means: "It returns to service with its current process.", do: signal(api.SignalResume),
	},
	{
		Name: "release", label: "Release lease…", of: aWorker, Danger: true, asks: "Release the lease on %s?",
		done:  "The lease was released.",
		Means: "Its holder loses the worker at once; what it calls next under the lease fails with lease_fenced.",
		do:    release,
	},
	{
		Name: "stop", label: "Stop…", of: aWorker, Danger: true, asks: "Stop %s now?", done: "The worker was asked to stop.",
		Means: "Its process ends without waiting for calls in flight. It stays stopped until a restart.",
		do:    signal(api.SignalStop),
	},
	{
		Name: "migrate", label: "Migrate…", of: aSession, NoReason: true, asks: "Move %s to another worker?",
		done: "The move has begun; the event session.migrated reports that the session is bound to the worker.",
		Means: "Its worker saves it, and the other worker loads it, if they offer these hooks; calls of the session then " +
			"go to the other worker. If a hook fails, it stays where it is.",
		do: migrate,
	},
	{
		Name: "delete-session", label: "Delete…", of: aSession, NoReason: true, Danger: true, asks: "Delete %s?",
		done:  "The session was deleted.",
		Means: "Its content cannot be restored. A worker that has it in memory keeps its copy.",
		do: func(ctx context.Context, v *visit, t actionTarget) error {
			return v.pool(t.Pool).Session(t.Session).Delete(v.remote(ctx))
		},
	},
	{
		Name: "drain-host", label: "Drain…", of: aHost, asks: "Drain %s?",
		done: "The host takes no new workers, and those that it has move.",
		Means: "Its workers restart and start on other hosts, at most rotation.max_unavailable of a pool at a time. One " +
			"for which no other host has capacity waits without a process. It takes no new worker until it is undrained.",
		do: func(ctx context.Context, v *visit, t actionTarget) error {
			_, err := v.d.config.Fleet.DrainHost(ctx, t.Host, t.attributed())
			return err
		},
	},
	{
		Name: "undrain-host", label: "Undrain…", of: aHost, NoReason: true, asks: "Let %s have workers again?",
		done:  "The host takes new workers again.",
		Means: "New workers may start on it. Those that have moved stay where they are.",
		do: func(ctx context.Context, v *visit, t actionTarget) error {
			return v.d.config.Fleet.UndrainHost(ctx, t.Host)
		},
	},
}

func scale(ctx context.Context, v *visit, t actionTarget) error {
	size, err := strconv.Atoi(strings.TrimSpace(t.Size))
	if err != nil || size < 1 {
		return api.Errorf(api.CodeInvalid, "%q is not a number of workers; give 1 or more", t.Size)
	}
	_, err = v.pool(t.Pool).ScaleTo(ctx, api.ScaleRequest{Size: size, Reason: t.Reason, By: t.By})
	return err
}

func migrate(ctx context.Context, v *visit, t actionTarget) error {
	slot, err := strconv.Atoi(strings.TrimSpace(t.To))
	if err != nil || slot < 0 {
		return api.Errorf(api.CodeInvalid, "%q is not the number of a worker of pool %s", t.To, t.Pool)
	}
	_, err = v.pool(t.Pool).Session(t.Session).Migrate(ctx, api.MigrateSessionRequest{To: api.WorkerName(t.Pool, slot)})
	return err
}

func release(ctx context.Context, v *visit, t actionTarget) error {
	ref, err := api.ParseLeaseID(t.Lease)
	if err != nil {
		return err
	}
	if ref.Pool != t.Pool || ref.Slot != *t.Slot {
		return api.Errorf(api.CodeInvalid, "lease %s is not on %s", t.Lease, t.Subject())
	}
	state, err := v.pool(t.Pool).State(ctx, *t.Slot)
	if err != nil {
		return err
	}
	if state.Lease == nil || state.Lease.ID != t.Lease {
		return api.Errorf(api.CodeLeaseFenced, "lease %s was released or has expired in the meantime; there is nothing to do",
			t.Lease)
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

// actionsOn are those on a pool or on a session, which query names.
func actionsOn(of kind, pool, query string) (links []actionLink) {
	for _, a := range actions {
		if a.of == of {
			links = append(links, actionLink{a.label, poolPath(pool) + "/do/" + a.Name + query, a.Danger})
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
		if a.of != aWorker || !offered[a.Name] {
			continue
		}
		query := url.Values{"worker": {strconv.Itoa(slot)}}
		if a.Name == "release" {
			query.Set("lease", lease.ID)
		}
		links = append(links, actionLink{a.label, poolPath(pool) + "/do/" + a.Name + "?" + query.Encode(), a.Danger})
	}
	return links
}

// asked is the action that a request names, and its target.
func (v *visit) asked() (action, actionTarget, error) {
	t := actionTarget{
		Pool: v.r.PathValue("pool"), Host: v.r.PathValue("host"), Lease: v.r.FormValue("lease"),
		Size: v.r.FormValue("size"), To: v.r.FormValue("to"),
		Reason: strings.TrimSpace(v.r.FormValue("reason")), By: v.principal.Name + " in the dashboard",
	}
	if runes := []rune(t.Reason); len(runes) > maxReasonRunes { // the forms allow no more
		return action{}, t, api.Errorf(api.CodeInvalid, "the reason has %d characters; at most %d are allowed", len(runes),
			maxReasonRunes)
	}
	at := slices.IndexFunc(actions, func(a action) bool {
		return a.Name == v.r.PathValue("action") && (a.of == aHost) == (t.Host != "")
	})
	if at < 0 {
		return action{}, t, errNoPage
	}
	switch actions[at].of {
	case aSession:
		if t.Session = v.r.FormValue("session"); t.Session == "" {
			return action{}, t, api.Errorf(api.CodeSessionNotFound, "the request names no session; start at the sessions page")
		}
		if !v.principal.Has(access.Sessions) {
			return action{}, t, api.Errorf(api.CodeForbidden, "%s does not have the right sessions, which this action requires",
				v.principal.Name)
		}
	case aHost:
		hosts := v.hosts(v.ctx())
		if !slices.ContainsFunc(hosts.value, func(h host) bool { return h.ID == t.Host }) {
			return action{}, t, cmp.Or(hosts.err, error(api.Errorf(api.CodeInvalid, "no host %s; the fleet page lists them",
				t.Host)))
		}
	case aWorker:
		slot, err := strconv.Atoi(v.r.FormValue("worker"))
		if err != nil || slot < 0 {
			return action{}, t, api.Errorf(api.CodeWorkerNotFound, "%q is not the number of a worker", v.r.FormValue("worker"))
		}
		t.Slot = &slot
	}
	return actions[at], t, nil
}

type confirmView struct {
	Action          action
	Label, Question string
	Target          actionTarget
	Workers         int // the size of the pool, to scale it
	Error           string
}

// confirmPage asks for confirmation of an action.
func (v *visit) confirmPage() error {
	a, t, err := v.asked()
	if err != nil {
		return err
	}
	return v.confirm(http.StatusOK, a, t, "")
}

func (v *visit) confirm(status int, a action, t actionTarget, failure string) error {
	view := confirmView{Action: a, Label: strings.TrimSuffix(a.label, "…"), Target: t, Error: failure,
		Question: strings.Replace(a.asks, "%s", t.Subject(), 1)}
	if a.Name == "scale" {
		view.Workers = max(1, v.status(v.ctx(), t.Pool).value.Size)
	}
	nav := "fleet"
	if a.of == aSession {
		nav = "sessions"
	}
	return v.render(status, "confirm", page{Title: view.Label + " " + t.Subject(), Nav: nav, Data: view})
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
		return v.confirm(statusOf(err), a, t, "The action failed: "+message(err)+".")
	}
	v.d.config.Logger.Info("dashboard action completed", "action", a.Name, "target", t.Subject(), "by", v.principal.Name,
		"reason", t.Reason)
	v.d.memos.pools.forget(t.Pool) // so that it is queried again
	back := t.Back() + "?done="
	if a.Name == "delete-session" {
		back = "/ui/sessions?pool=" + t.Pool + "&done="
	}
	http.Redirect(v.w, v.r, back+a.Name, http.StatusSeeOther)
	return nil
}

// noticeOf is the notice about an action on the next page.
func noticeOf(r *http.Request) string {
	for _, a := range actions {
		if a.Name == r.URL.Query().Get("done") {
			return a.done
		}
	}
	return ""
}
