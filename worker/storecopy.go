package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/dualwrite"
	"github.com/tempool/tempool/spec"
)

// resumeCopy goes on with a copy that an earlier agent of this state folder had begun. It is called before anything else.
func (s *stores) resumeCopy() error {
	record, err := readCopy(s.dir)
	if err != nil || record == nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copy = record
	// Pools that come up say how many sessions there may be; until then nobody makes any.
	if _, err := s.opened(record.From.of(spec.Default().Sessions)); err != nil {
		s.log.Warn("a copy of sessions does not go on before its stores can be opened", "error", err) // which every use tries
	}
	s.log.Info("a copy of sessions goes on", "from", record.From.String(), "to", record.To.String(), "cut_over", record.CutOver)
	return nil
}

// openPair opens the two stores of a copy. The one that is the truth must open; without the other, sessions go on. s.mu is held.
func (s *stores) openPair(settings spec.Sessions) (*dualwrite.Store, error) {
	truth, follower := s.copy.From, s.copy.To
	if s.copy.CutOver {
		truth, follower = follower, truth
	}
	first, err := s.openStore(truth.of(settings))
	if err != nil {
		return nil, err
	}
	second, err := s.openStore(follower.of(settings))
	if err != nil {
		second = dualwrite.Absent(err)
	}
	store := dualwrite.Of(first)
	store.Begin(second, s.copy.CutOver, true)
	return store, nil
}

// SessionCopy is part of gateway.Copies.
func (s *stores) SessionCopy() api.SessionCopy {
	s.mu.Lock()
	record := s.copy
	var known *openStore
	if record != nil {
		known = s.open[record.From.key()]
	}
	s.mu.Unlock()
	if record == nil {
		return api.SessionCopy{Phase: api.CopyNone, Host: s.hostID}
	}
	report := api.SessionCopy{Phase: api.CopyCopying, Problem: "a store cannot be opened; the agent's log says why"}
	if known != nil {
		report = known.store.Report()
	} else if record.CutOver {
		report.Phase = api.CopyCutOver
	}
	report.Host, report.From, report.To, report.Began = s.hostID, record.From.String(), record.To.String(), record.Began
	return report
}

// CopySessions is part of gateway.Copies.
func (s *stores) CopySessions(ctx context.Context, pool string, request api.SessionCopyRequest) (api.SessionCopy, error) {
	var none api.SessionCopy
	from, err := parseStore(request.From)
	if err != nil {
		return none, err
	}
	to, err := parseStore(request.To)
	if err != nil {
		return none, err
	}
	s.copying.Lock()
	defer s.copying.Unlock()
	settings, err := s.settings(ctx, pool)
	if err != nil {
		return none, err
	}
	s.mu.Lock()
	record := s.copy
	s.mu.Unlock()
	is := storeAddress{settings.Store, settings.URL}
	switch {
	case record != nil && record.From == from && record.To == to:
		return s.SessionCopy(), nil
	case record != nil:
		return none, api.Errorf(api.CodeInvalid, "a copy from %s to %s goes on already: finish or cancel it first", record.From, record.To)
	case is != from:
		return none, api.Errorf(api.CodeInvalid, "pool %s keeps its sessions in %s, not in %s", pool, is, from)
	case from == to:
		return none, api.Errorf(api.CodeInvalid, "the two stores are the same, %s", from)
	}
	if users := s.poolsIn(to); len(users) > 0 {
		return none, api.Errorf(api.CodeInvalid, "pool %s of this host keeps its sessions in %s already: copy to a store of its own", users[0], to)
	}
	if err := s.requireAlone(ctx, from); err != nil {
		return none, err
	}
	target, err := s.emptyTarget(ctx, to.of(settings), request.Replace)
	if err != nil {
		return none, err
	}
	record = &copyRecord{From: from, To: to, Began: time.Now().UTC().Truncate(time.Millisecond)}
	if err := s.beginCopy(settings, record, target); err != nil {
		_ = target.Close() // nothing is in it that anybody waits for
		return none, err
	}
	s.log.Info("a copy of sessions begins", "pool", pool, "from", from.String(), "to", to.String())
	return s.SessionCopy(), nil
}

// beginCopy gives the store of the settings its second one.
func (s *stores) beginCopy(settings spec.Sessions, record *copyRecord, target sessions.Mirror) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return sessions.Unavailable("copy sessions", sessions.ErrClosed)
	}
	known, err := s.opened(settings)
	if err != nil {
		return err
	}
	if err := record.write(s.dir); err != nil {
		return err
	}
	s.copy = record
	known.store.Begin(target, false, false)
	return nil
}

// emptyTarget opens the store that sessions are to be copied to.
func (s *stores) emptyTarget(ctx context.Context, settings spec.Sessions, replace bool) (sessions.Mirror, error) {
	s.mu.Lock()
	if left := s.open[storeKey(settings)]; left != nil { // of pools that are gone
		delete(s.open, storeKey(settings))
		if err := left.store.Close(); err != nil {
			s.log.Warn("a session store that nobody uses was not closed in good order", "error", err)
		}
	}
	s.mu.Unlock()
	target, err := s.openStore(settings)
	if err != nil {
		return nil, err
	}
	count, err := target.Count(ctx)
	if err == nil && count > 0 && !replace {
		err = api.Errorf(api.CodeInvalid, "the store to copy to has %d sessions already: name an empty one, or have them deleted with --replace", count)
	}
	if err != nil {
		_ = target.Close() // the first error is the one to tell
		return nil, err
	}
	return target, nil
}

// StepSessionCopy is part of gateway.Copies.
func (s *stores) StepSessionCopy(ctx context.Context, step api.SessionCopyStep) (api.SessionCopy, error) {
	s.copying.Lock()
	defer s.copying.Unlock()
	s.mu.Lock()
	record := s.copy
	var known *openStore
	if record != nil {
		known = s.open[record.From.key()]
	}
	s.mu.Unlock()
	var none api.SessionCopy
	if record == nil {
		return none, api.Errorf(api.CodeInvalid, "no copy of sessions goes on here: begin one with ctl sessions copy POOL --from STORE --to STORE")
	}
	if known == nil {
		return none, api.Errorf(api.CodeStoreUnavailable, "the stores of the copy cannot be opened; the agent's log says why")
	}
	lost, err := s.step(ctx, known.store, *record, step)
	if err != nil {
		return none, err
	}
	s.log.Info("a copy of sessions has gone a step on", "step", step.Step, "from", record.From.String(), "to", record.To.String())
	report := s.SessionCopy()
	report.Lost = lost
	return report, nil
}

func (s *stores) step(ctx context.Context, store *dualwrite.Store, record copyRecord, step api.SessionCopyStep) (lost int, err error) {
	wrong := func(why string) error {
		return api.Errorf(api.CodeInvalid, "%s cannot be done now: %s", step.Step, why)
	}
	switch step.Step {
	case api.CopyStepCutOver, api.CopyStepBack:
		back := step.Step == api.CopyStepBack
		if back != record.CutOver {
			return 0, wrong(fmt.Sprintf("sessions are in %s still, or again", map[bool]storeAddress{true: record.From, false: record.To}[back]))
		}
		if step.Force && !back {
			return 0, wrong("only going back can be forced")
		}
		if !step.Force {
			if err := s.requireAlone(ctx, record.From); err != nil {
				return 0, err
			}
		}
		record.CutOver = !back
		lost, err = store.Swap(ctx, step.Force, func() error { return record.write(s.dir) })
		if err == nil {
			s.mu.Lock()
			s.copy = &record
			s.mu.Unlock()
		}
		return lost, err
	case api.CopyStepFinish, api.CopyStepCancel:
		finish := step.Step == api.CopyStepFinish
		kept, released := record.From, record.To
		if finish {
			kept, released = released, kept
		}
		if finish != record.CutOver {
			return 0, wrong(fmt.Sprintf("sessions are in %s still; %s first", released, map[bool]api.CopyStep{true: api.CopyStepCutOver, false: api.CopyStepBack}[finish]))
		}
		if users := s.poolsIn(released); len(users) > 0 {
			return 0, wrong(fmt.Sprintf("the spec of %s says that sessions are in %s: apply one with %s first", strings.Join(users, ", "), released, kept.inWords()))
		}
		return 0, s.endCopy(store, record, kept)
	}
	return 0, api.Errorf(api.CodeInvalid, "%q is no step of a copy; write %s, %s, %s or %s", step.Step,
		api.CopyStepCutOver, api.CopyStepBack, api.CopyStepFinish, api.CopyStepCancel)
}

// inWords is what a spec says for the store.
func (a storeAddress) inWords() string {
	if a.Store == spec.StoreRedis {
		return fmt.Sprintf(`sessions.store = "redis" and sessions.url = %q`, a)
	}
	return fmt.Sprintf("sessions.store = %q", a.Store)
}

// endCopy keeps one of the two stores.
func (s *stores) endCopy(store *dualwrite.Store, record copyRecord, kept storeAddress) error {
	released, err := store.End(func() error { return removeCopy(s.dir) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	known := s.open[record.From.key()]
	delete(s.open, record.From.key())
	s.open[kept.key()] = known
	s.copy = nil
	s.mu.Unlock()
	if err := released.Close(); err != nil {
		s.log.Warn("the session store that was let go was not closed in good order", "error", err)
	}
	return nil
}

// poolsIn are the pools with a process here whose specs name a store, sorted.
func (s *stores) poolsIn(store storeAddress) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, p := range s.pools {
		if p.processes > 0 && storeKey(p.settings) == store.key() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// requireAlone fails if other hosts have workers of the pools that keep sessions in a store, or in the other one of its copy: what those
// write to one store, this agent could not write to the other.
func (s *stores) requireAlone(ctx context.Context, store storeAddress) error {
	s.mu.Lock()
	var names []string
	for name, p := range s.pools {
		if p.processes > 0 && s.canonical(p.settings) == store.key() {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	for _, name := range names {
		others, err := s.hostsBeside(ctx, name)
		if err != nil {
			return err
		}
		if len(others) > 0 {
			return api.Errorf(api.CodeInvalid, "pool %s has workers on %s, too, whose agents write to one store only: scale the pool down to this host for the copy", name, strings.Join(others, ", "))
		}
	}
	return nil
}
