package pool

import (
	"fmt"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/workflows/internal/display"
)

// report answers the query report with what the pool itself knows: the life of its workers, and none of their figures. ctl report
// asks the workers, too. Times that run are as of the last workflow task.
func (p *pool) report() (policy.Report, error) {
	st, err := p.status()
	if err != nil {
		return policy.Report{}, err
	}
	facts := policy.PoolFacts{
		Pool: st.Pool, Size: st.Size, SpecVersion: st.SpecVersion, Stopping: st.Stopping, Held: st.Held,
		MaxMemoryBytes: int64(st.Spec.Rotation.MaxMemory), At: p.now(),
	}
	if r := st.Rollout; r != nil {
		facts.Rollout = fmt.Sprintf("%s, %d done and %d to go", r.Reason, r.Done, len(r.Waiting)+len(r.Current))
		facts.Halted = r.Halted
	}
	for _, e := range st.Workers {
		if e.Gone {
			continue
		}
		health := lifecycle.Unknown // what the pool does not hear of
		if e.State == lifecycle.Degraded {
			health = lifecycle.Unhealthy
		}
		facts.Workers = append(facts.Workers, policy.WorkerFacts{
			Worker: api.WorkerName(st.Pool, e.Slot), State: e.State, Health: health, Since: e.Since, Reason: e.Reason, Host: e.Host, Resting: e.Resting,
		})
	}
	return policy.Reported(facts), nil
}

// status answers the query status.
func (p *pool) status() (api.PoolStatus, error) {
	st := api.PoolStatus{
		Pool: p.PoolStart.Pool, Size: p.Size, SpecVersion: p.SpecVersion, Spec: p.Spec, Stopping: p.Stopping,
		Workers: []api.RosterEntry{},
	}
	if p.Breaker.Open() {
		st.Held = startsHeldReason
	}
	st.Shares, st.AllocationProblem, st.SessionsHost = p.Shares, p.AllocationProblem, p.SessionsHost
	for _, h := range p.Pressure {
		st.Parked = append(st.Parked, h.Parked...)
		st.Pressure = append(st.Pressure, api.PressureStatus{Host: h.Host, Level: string(h.Level), Reason: h.Reason})
	}
	if p.Rollout != nil {
		view := p.Rollout.view()
		st.Rollout = &view
	}
	for i := range p.Roster {
		s := p.Roster[i]
		if p.isParked(s.Slot) && !s.isServing() {
			s.ReasonCode = api.ReasonMemoryPressure
		}
		st.Workers = append(st.Workers, s.RosterEntry)
		if s.isServing() {
			st.Ready++
		}
	}
	return st, nil
}

// details is the page a reader of the Web UI sees above the pool's history.
func (p *pool) details() string {
	st, _ := p.status()
	var b strings.Builder
	fmt.Fprintf(&b, "### pool %s: %d/%d ready\n\n`%s`, spec version %d\n", st.Pool, st.Ready, st.Size, strings.Join(p.Spec.Pool.Command, " "), st.SpecVersion)
	if p.Stopping {
		b.WriteString("\nstopping\n")
	}
	if r := st.Rollout; r != nil {
		fmt.Fprintf(&b, "\nrollout (%s): %d done, restarting %v, waiting %v %s\n", r.Reason, r.Done, r.Current, r.Waiting, r.Halted)
	}
	b.WriteString("\n| worker | state | incarnation | host | PID | why |\n| --- | --- | --- | --- | --- | --- |\n")
	for i, s := range st.Workers {
		if i == maxRosterRows {
			fmt.Fprintf(&b, "\n… and %d more\n", len(st.Workers)-i)
			break
		}
		fmt.Fprintf(&b, "| %d | %s | %d | %s | %d | %s |\n", s.Slot, s.State, s.Incarnation, s.Host, s.PID, display.Cell(s.Reason))
	}
	return b.String()
}

const maxRosterRows = 50
