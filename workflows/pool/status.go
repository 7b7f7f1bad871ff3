package pool

import (
	"fmt"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
)

// status answers the query status.
func (p *pool) status() (api.PoolStatus, error) {
	st := api.PoolStatus{
		Pool: p.name(), Size: p.Size, SpecVersion: p.SpecVersion, Spec: p.Spec, Stopping: p.Stopping,
		Workers: []api.RosterEntry{},
		Shares:  p.Shares, AllocationProblem: p.AllocationProblem, SessionsHost: p.SessionsHost, Scale: p.scaleStatus(),
	}
	if p.Breaker.Open() {
		st.StartsPaused = startsPausedReason
	}
	for _, h := range p.Pressure {
		st.StoppedForMemory = append(st.StoppedForMemory, h.Stopped...)
		st.Pressure = append(st.Pressure, api.PressureStatus{Host: h.Host, Level: string(h.Level), Reason: h.Reason})
	}
	if p.Rollout != nil {
		st.Rollout = p.Rollout.status()
	}
	for i := range p.Roster {
		s := p.Roster[i]
		if s.ReasonCode == api.ReasonStopped && p.pressure.isStopped(s.Slot) {
			s.ReasonCode = api.ReasonMemoryPressure
		}
		if s.ReasonCode == api.ReasonBackoff && p.Breaker.Open() && p.Breaker.Trial != p.worker(s.Slot) {
			s.ReasonCode, s.Reason = api.ReasonBreaker, startsPausedReason // it does not report the end of its backoff
		}
		s.Removing = s.Removing || !p.isMember(s.Slot)
		st.Workers = append(st.Workers, s.RosterEntry)
		if s.isServing() {
			st.Ready++
		}
	}
	return st, nil
}

// report answers the query report with what the pool itself knows: the states of its workers, and none of their
// figures. tempool pool status queries the workers, too. Durations are as of the last workflow task.
func (p *pool) report() (policy.Report, error) {
	st, err := p.status()
	if err != nil {
		return policy.Report{}, err
	}
	return policy.NewRosterReport(st, p.Now()), nil
}

// details is the page that the Web UI shows above the history. The query status has the workers, each of which has a
// page, too.
func (p *pool) details() string {
	st, _ := p.status()
	var b strings.Builder
	fmt.Fprintf(&b, "### pool %s: %d/%d ready\n\n`%s`, spec version %d\n", st.Pool, st.Ready, st.Size,
		p.Spec.Pool.Program(), st.SpecVersion)
	if p.Stopping {
		b.WriteString("\nstopping\n")
	}
	if s := st.Scale; s != nil {
		fmt.Fprintf(&b, "\nwanted: %d of %d to %d (%s)\n", s.Wanted, s.Min, s.Max, s.Reason)
	}
	if r := st.Rollout; r != nil {
		fmt.Fprintf(&b, "\nrollout (%s): %d done, restarting %v, waiting %v %s\n", r.Reason, r.Done, r.Current, r.Waiting,
			r.Halted)
	}
	return b.String()
}
