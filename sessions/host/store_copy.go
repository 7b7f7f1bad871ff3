package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/dualwrite"
	"github.com/tempool/tempool/spec"
)

// ResumeCopy continues a copy that an earlier agent with this state folder began. Call it before any other method.
func (s *Stores) ResumeCopy() error {
	record, err := readCopyRecord(s.dir)
	if err != nil || record == nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copy = record
	// The default bounds apply until a pool starts here and sets its own; until then nothing creates a session.
	settings := spec.Default().Sessions
	settings.Store, settings.URL = record.From.Store, record.From.URL
	if _, err := s.openLocked(settings); err != nil {
		s.log.Warn("cannot open the stores of a session copy; each request retries", "error", err)
	}
	s.log.Info("session copy resumed", "from", record.From.String(), "to", record.To.String(), "cut_over", record.CutOver)
	return nil
}

// currentCopy returns the copy in progress and its store. Both are nil without a copy; the store is nil while it cannot
// be opened.
func (s *Stores) currentCopy() (*copyRecord, *openStore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.copy == nil {
		return nil, nil
	}
	return s.copy, s.open[s.copy.From]
}

// SessionCopy implements gateway.Copies.
func (s *Stores) SessionCopy() api.SessionCopy {
	record, known := s.currentCopy()
	if record == nil {
		return api.SessionCopy{Phase: api.CopyNone, Host: s.hostID}
	}
	report := api.SessionCopy{Phase: api.CopyCopying, Problem: "a store cannot be opened; see the agent's log"}
	if known != nil {
		report = known.store.Status()
	}
	if record.CutOver {
		report.Phase = api.CopyCutOver
	}
	report.Host, report.From, report.To, report.Began = s.hostID, record.From.String(), record.To.String(), record.Began
	return report
}

// CopySessions implements gateway.Copies.
func (s *Stores) CopySessions(ctx context.Context, pool string,
	request api.SessionCopyRequest) (api.SessionCopy, error) {
	var none api.SessionCopy
	from, err := parseStore(request.From)
	if err != nil {
		return none, err
	}
	to, err := parseStore(request.To)
	if err != nil {
		return none, err
	}
	s.copyMu.Lock()
	defer s.copyMu.Unlock()
	_, settings, err := s.poolsOf(ctx, pool)
	if err != nil {
		return none, err
	}
	record, _ := s.currentCopy()
	current := addressOf(settings)
	switch {
	case record != nil && record.From == from && record.To == to:
		return s.SessionCopy(), nil
	case record != nil:
		return none, api.Errorf(api.CodeInvalid, "a copy from %s to %s is already in progress; finish or cancel it first",
			record.From, record.To)
	case current != from:
		return none, api.Errorf(api.CodeInvalid, "pool %s stores its sessions in %s, not in %s", pool, current, from)
	case from == to:
		return none, api.Errorf(api.CodeInvalid, "source and target are the same store, %s", from)
	}
	users, err := s.poolsUsing(ctx, to)
	if err != nil {
		return none, err
	}
	if len(users) > 0 {
		return none, api.Errorf(api.CodeInvalid,
			"pool %s stores its sessions in %s already; copy to a store that no pool uses", names(users), to)
	}
	if err := s.requireOnlyHost(ctx, from); err != nil {
		return none, err
	}
	target, err := s.openTarget(ctx, settings, to, request.Replace)
	if err != nil {
		return none, err
	}
	record = &copyRecord{From: from, To: to, Began: time.Now().UTC().Truncate(time.Millisecond)}
	if err := s.beginCopy(settings, record, target); err != nil {
		_ = target.Close() // it holds nothing new
		return none, err
	}
	s.log.Info("session copy started", "pool", pool, "from", from.String(), "to", to.String())
	return s.SessionCopy(), nil
}

// beginCopy makes target the secondary of the store with these settings.
func (s *Stores) beginCopy(settings spec.Sessions, record *copyRecord, target sessions.Store) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, err := s.openLocked(settings)
	if err != nil {
		return err
	}
	if err := record.write(s.dir); err != nil {
		return err
	}
	s.copy = record
	known.store.StartCopy(target, false)
	return nil
}

// openTarget opens the target of a copy of the store with these settings, and fails if it has sessions that the copy
// must not replace.
func (s *Stores) openTarget(ctx context.Context, settings spec.Sessions, to storeAddress,
	replace bool) (sessions.Store, error) {
	s.mu.Lock()
	if unused := s.open[to]; unused != nil { // of pools that have ended
		delete(s.open, to)
		if err := unused.store.Close(); err != nil {
			s.log.Warn("closing an unused session store failed", "error", err)
		}
	}
	known, err := s.openLocked(settings)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	target, err := s.openBackend(to, known)
	if err != nil {
		return nil, err
	}
	count, err := target.Count(ctx)
	if err == nil && count > 0 && !replace {
		err = api.Errorf(api.CodeInvalid,
			"the target store has %d sessions; choose an empty store, or delete them with --replace", count)
	}
	if err != nil {
		_ = target.Close() // the first error matters
		return nil, err
	}
	return target, nil
}

// StepSessionCopy implements gateway.Copies.
func (s *Stores) StepSessionCopy(ctx context.Context, step api.SessionCopyStep) (api.SessionCopy, error) {
	s.copyMu.Lock()
	defer s.copyMu.Unlock()
	record, known := s.currentCopy()
	var none api.SessionCopy
	if record == nil {
		return none, api.Errorf(api.CodeInvalid,
			"no session copy is in progress on this host; start one with tempool sessions copy POOL --from STORE --to STORE")
	}
	if known == nil {
		return none, api.Errorf(api.CodeStoreUnavailable, "the stores of the copy cannot be opened; see the agent's log")
	}
	lost, problem := 0, ""
	var err error
	switch step.Step {
	case api.CopyStepCutOver, api.CopyStepBack:
		lost, err = s.swapCopy(ctx, known.store, *record, step)
	case api.CopyStepFinish, api.CopyStepCancel:
		problem, err = s.endCopy(ctx, known.store, *record, step.Step)
	default:
		err = api.Errorf(api.CodeInvalid, "unknown step %q; allowed: %s, %s, %s or %s", step.Step,
			api.CopyStepCutOver, api.CopyStepBack, api.CopyStepFinish, api.CopyStepCancel)
	}
	if err != nil {
		return none, err
	}
	s.log.Info("session copy step done", "step", step.Step, "from", record.From.String(), "to", record.To.String())
	report := s.SessionCopy()
	report.Lost, report.Problem = lost, cmp.Or(problem, report.Problem)
	return report, nil
}

func stepRefused(step api.CopyStep, format string, values ...any) error {
	return api.Errorf(api.CodeInvalid, "%s is not possible now: %s", step, fmt.Sprintf(format, values...))
}

// swapCopy makes the other store of the copy the primary, and returns how many sessions a forced step back lost.
func (s *Stores) swapCopy(ctx context.Context, store *dualwrite.Store, record copyRecord,
	step api.SessionCopyStep) (lost int, err error) {
	back := step.Step == api.CopyStepBack
	switch {
	case back && !record.CutOver:
		return 0, stepRefused(step.Step, "the sessions are in %s, the source", record.From)
	case !back && record.CutOver:
		return 0, stepRefused(step.Step, "the sessions are already in %s", record.To)
	case step.Force && !back:
		return 0, stepRefused(step.Step, "only %s can be forced", api.CopyStepBack)
	}
	if !step.Force {
		stores := []storeAddress{record.To, record.From}
		if back {
			stores = stores[:1] // the step protects the sessions of others in the first store
		}
		if err := s.requireOnlyHost(ctx, stores...); err != nil {
			return 0, err
		}
	}
	record.CutOver = !back
	if lost, err = store.SwitchRoles(ctx, step.Force, func() error { return record.write(s.dir) }); err != nil {
		return lost, err
	}
	s.mu.Lock()
	s.copy = &record
	s.mu.Unlock()
	return lost, nil
}

// endCopy keeps the primary of the copy and closes the secondary. It returns which pools it could not check.
func (s *Stores) endCopy(ctx context.Context, store *dualwrite.Store, record copyRecord,
	step api.CopyStep) (problem string, err error) {
	kept, released, swap := record.From, record.To, api.CopyStepBack
	if step == api.CopyStepFinish {
		kept, released, swap = record.To, record.From, api.CopyStepCutOver
	}
	if record.CutOver != (step == api.CopyStepFinish) {
		return "", stepRefused(step, "the sessions are still in %s; run the step %s first", released, swap)
	}
	users := s.poolsHere(released)
	if step == api.CopyStepFinish { // --cancel must always work: it protects the sessions of others in the second store
		all, unknown := s.poolsUsing(ctx, released) // without an answer, the pools here count
		if unknown != nil {
			problem = fmt.Sprintf("not all pools were checked: %v; no spec may still name %s", unknown,
				released)
		}
		for pool, others := range all {
			if len(others) == 0 {
				users[pool] = nil
			}
		}
	}
	if len(users) > 0 {
		return "", stepRefused(step, "the spec of %s still names %s; apply one with %s first", names(users), released,
			kept.specText())
	}
	secondary, err := store.EndCopy(func() error { return removeCopyRecord(s.dir) })
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	known := s.open[record.From]
	delete(s.open, record.From)
	s.open[kept] = known
	s.copy = nil
	s.mu.Unlock()
	if err := secondary.Close(); err != nil {
		s.log.Warn("closing the released session store failed", "store", released.String(), "error", err)
	}
	return problem, nil
}

// poolsHere returns the pools with a process here whose specs name one of these stores.
func (s *Stores) poolsHere(stores ...storeAddress) map[string][]string {
	using := make(map[string][]string)
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, p := range s.pools {
		if p.processes > 0 && slices.Contains(stores, addressOf(p.settings)) {
			using[name] = nil
		}
	}
	return using
}

// poolsUsing returns the pools whose specs name one of these stores, each with the other hosts of its workers: those
// with a process here, and all other running ones. The local store of another host is another store. It fails with
// api.CodeStoreUnavailable if a pool does not answer.
func (s *Stores) poolsUsing(ctx context.Context, stores ...storeAddress) (map[string][]string, error) {
	using := s.poolsHere(stores...)
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	running, err := s.ask.List(ctx)
	if err != nil {
		return nil, errUsersUnknown(err)
	}
	pools := slices.AppendSeq(running, maps.Keys(using)) // a new pool is listed later
	statuses, errs := make([]api.PoolStatus, len(pools)), make([]error, len(pools))
	sleep.Each(len(pools), 16, func(i int) { statuses[i], errs[i] = s.ask.Status(ctx, pools[i]) })
	for i, name := range pools {
		status := statuses[i]
		_, here := using[name]
		settings := status.Spec.Sessions
		switch {
		case errors.Is(errs[i], api.ErrPoolNotFound): // it has ended since
		case errs[i] != nil:
			err = errUsersUnknown(errs[i])
		case here, slices.Contains(stores, addressOf(settings)) &&
			(settings.Store == spec.StoreRedis || status.SessionsHost == s.hostID):
			using[name] = s.otherHosts(status)
		}
	}
	return using, err
}

func errUsersUnknown(err error) error {
	return api.Errorf(api.CodeStoreUnavailable, "cannot find out which pools use the stores of the copy: %w",
		err).After(time.Second)
}

// otherHosts returns the other hosts that have workers of a pool, sorted.
func (s *Stores) otherHosts(status api.PoolStatus) (others []string) {
	for _, w := range status.Workers {
		if w.Host != "" && w.Host != s.hostID && !w.Gone {
			others = append(others, w.Host)
		}
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// requireOnlyHost fails if other hosts have workers of the pools that use a store, or the other store of its copy:
// those hosts write to one of the two stores only.
func (s *Stores) requireOnlyHost(ctx context.Context, stores ...storeAddress) error {
	users, err := s.poolsUsing(ctx, stores...)
	for name, others := range users {
		if len(others) > 0 {
			return api.Errorf(api.CodeInvalid,
				"pool %s also has workers on %s, whose agents write to one store only; scale the pool down to this host for the "+
					"copy", name, strings.Join(others, ", "))
		}
	}
	return err
}

func names(users map[string][]string) string {
	return strings.Join(slices.Sorted(maps.Keys(users)), ", ")
}
