package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
)

// keptNote is what this agent passes to the next one about a process that it hands over.
type keptNote struct {
	RunID    string           `json:"run_id"`
	Watch    api.WatchRequest `json:"watch"`
	Usage    api.Usage        `json:"usage"`
	Baseline int64            `json:"baseline,omitempty"` // of its memory, in bytes
	// Suspension is the newest one, Lease the client's that counted; nil for none.
	Suspension *api.Suspension `json:"suspension,omitempty"`
	Lease      *api.Lease      `json:"lease,omitempty"`
}

// Release ends the observation of all processes without notifying their workers, and the orders to them without an
// answer, before they are handed over. The gateway has left and is not closed: otherwise it would answer an order about
// a process that it does not know any more. Release returns, when nothing of that is in progress, the calls of each
// process so far.
func (h *Host) Release() []api.ProcessUsage {
	s := &h.monitors
	s.mu.Lock()
	s.initLocked()
	s.release()
	s.mu.Unlock()
	s.orders.Wait()
	s.running.Wait()
	s.mu.Lock()
	monitors := maps.Clone(s.all) // the gateway asks for scores under its own locks
	s.mu.Unlock()
	var all []api.ProcessUsage
	for p, m := range monitors {
		usage := p.Served().Usage()
		m.kept = keptNote{Usage: usage, Suspension: h.DataPlane.Suspension(p.Worker(), p.Incarnation()),
			Lease: h.DataPlane.Lease(p.Worker(), p.Incarnation())}
		all = append(all, api.ProcessUsage{Process: processOf(p), Usage: usage})
	}
	return all
}

// errResultPending leaves an order without an answer: the process keeps running, and once the next agent has it, its
// worker gives that agent the order again.
var errResultPending = activity.ErrResultPending

// order carries out an order to a process. With Release its ctx ends, and there is no answer: it would be that of an
// agent which does not know the process any more.
func order[R any](ctx context.Context, h *Host, do func(context.Context) R) (R, error) {
	var none R
	s := &h.monitors
	s.mu.Lock()
	s.initLocked()
	if s.released.Err() != nil {
		s.mu.Unlock()
		return none, errResultPending
	}
	s.orders.Add(1)
	s.mu.Unlock()
	defer s.orders.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.released, cancel)()
	result := do(ctx)
	if s.released.Err() != nil {
		return none, errResultPending
	}
	return result, nil
}

// Note returns what the next agent needs about a process, after Release.
func (h *Host) Note(p *process.Process) json.RawMessage {
	note := keptNote{}
	if m := h.monitors.of(p); m != nil {
		note = m.kept
		note.RunID, note.Watch = m.runID, m.current()
		m.health.mu.Lock()
		note.Baseline = m.health.baseline
		m.health.mu.Unlock()
	}
	text, err := json.Marshal(note)
	if err != nil {
		h.Logger.Error("cannot describe a process to the next agent", "worker", p.Worker(), "error", err)
	}
	return text
}

// Resume observes a process that was taken over, continues with the count of its calls, and has the gateway continue
// with its suspension and its lease. It fails for the note of another release.
func (h *Host) Resume(kept process.Kept) error {
	var note keptNote
	if err := json.Unmarshal(kept.Note, &note); err != nil {
		return fmt.Errorf("read the previous agent's record of %s: %w", kept.Worker(), err)
	}
	if note.Watch.Worker != kept.Worker() {
		return fmt.Errorf("the previous agent left no instructions to observe %s", kept.Worker())
	}
	kept.Served().Restore(note.Usage)
	h.DataPlane.Resume(kept.Process, note.Suspension, note.Lease)
	h.monitor(kept.Process, note.RunID, note.Watch, note.Baseline)
	return nil
}

// EndUnclaimed kills those processes that were taken over and whose workers have not asked this agent to observe them
// within a time: they have been replaced meanwhile, or are about to be. It returns after that time, or when ctx ends.
func (h *Host) EndUnclaimed(ctx context.Context, kept []process.Kept, within time.Duration) {
	if !sleep.For(ctx.Done(), within) {
		return
	}
	for _, k := range kept {
		m := h.monitors.of(k.Process)
		if m == nil {
			continue // it has ended
		}
		m.mu.Lock()
		claimed := m.claimed
		m.mu.Unlock()
		if !claimed {
			k.Kill("the worker's workflow did not claim it within " + within.String() + " after the agent had taken it over")
		}
	}
}
