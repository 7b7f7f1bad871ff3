package host

import (
	"time"

	"github.com/tempool/tempool/api"
)

// membership is who holds a host id.
type membership struct {
	api.HostStatus
	// StateID is the id of the state folder of the agent that holds the id, or held it last.
	StateID string `json:"state_id,omitempty"`
	// SuspectUntil is when a suspect host is lost, and when one that keeps processes gives them up.
	SuspectUntil time.Time `json:"suspect_until,omitzero"`
	// Last is the usage that a suspect agent, or one that left with processes kept, had last reported of its processes.
	Last []api.ProcessUsage `json:"last,omitempty"`
	// Ended are the epochs whose workers have to be notified; nil if all have been.
	Ended *api.EndEpochRequest `json:"ended,omitempty"`
}

// join decides about an agent that announces itself. It is refused as api.CodeHostTaken while an agent on another state
// folder is alive, and when the epoch it had was taken over by another instance. A repeated join keeps its epoch, even
// in a new workflow that knows of none; every other one begins the next and ends those before.
func (m membership) join(r api.JoinRequest, now time.Time) (membership, *api.Error) {
	if r.Instance == "" || r.StateID == "" {
		return m, api.Errorf(api.CodeInvalid, "instance and state folder are required")
	}
	same := r.Instance == m.Instance
	switch {
	case same && m.State.Alive():
		m.Last = nil
		m.setState(api.HostUp, now)
		return m.describe(r), nil
	case !same && (m.State.Alive() || m.State == api.HostKeeping) && (r.StateID != m.StateID || r.Epoch > 0):
		return m, api.Errorf(api.CodeHostTaken, "host id %q is held by agent %s (%s) since %s, epoch %d",
			m.Host, m.Instance, m.Machine, m.JoinedAt.UTC().Format(time.RFC3339),
			m.Epoch).After(api.HostHeartbeatTimeout + api.HostGrace)
	}
	switch {
	case m.Epoch == 0 && r.Epoch > 0:
		m.Epoch = r.Epoch
	default:
		ended := max(m.Epoch, r.Last)
		m.Epoch = max(ended, r.Epoch) + 1
		if ended == 0 {
			break
		}
		if m.end(ended, "the agent of host "+m.Host+" was started again"); m.Ended.Usage == nil {
			m.Ended.Usage = r.Usage
		}
		if len(r.Kept) > 0 {
			m.Ended.Kept, m.Ended.NextAgent = r.Kept, &api.NextAgent{Epoch: m.Epoch, Endpoint: r.Endpoint}
		}
	}
	m.Instance, m.StateID, m.JoinedAt, m.State = r.Instance, r.StateID, now, ""
	m.setState(api.HostUp, now)
	return m.describe(r), nil
}

func (m membership) describe(r api.JoinRequest) membership {
	m.Labels, m.Capacity, m.Endpoint, m.Machine = r.Labels, r.Capacity, r.Endpoint, r.Machine
	return m
}

// leave ends an epoch whose agent shuts down, except for the processes that it keeps; an older epoch changes nothing.
func (m membership) leave(r api.LeaveRequest, now time.Time) membership {
	if r.Epoch != m.Epoch || !m.State.Alive() {
		return m
	}
	m.setState(api.HostLeft, now)
	m.end(r.Epoch, "the agent of host "+m.Host+" has stopped")
	m.Ended.Usage = r.Usage
	if len(r.Kept) > 0 {
		m.setState(api.HostKeeping, now)
		m.Ended.Kept, m.Last, m.SuspectUntil = r.Kept, r.Usage, now.Add(time.Duration(r.KeepMS)*time.Millisecond)
	}
	return m
}

// giveUp ends the epoch of processes that no agent has taken over.
func (m *membership) giveUp(now time.Time) {
	m.end(m.Epoch, "no agent took over the processes of host "+m.Host+" in time")
	m.setState(api.HostLeft, now)
}

// suspect begins the time in which a silent agent may join again. The heartbeat of last timed out: much later than it
// was due if Temporal was unavailable, and then the agent could not heartbeat.
func (m *membership) suspect(last api.HostHeartbeat, now time.Time) {
	grace := api.HostGrace
	if !last.At.IsZero() && now.Sub(last.At) > api.HostHeartbeatTimeout+2*api.HostHeartbeatInterval {
		grace = api.HostOutageGrace
	}
	m.setState(api.HostSuspect, now)
	m.SuspectUntil, m.Last = now.Add(grace), last.Used()
}

// lose ends the present epoch of an agent that has not joined again.
func (m *membership) lose(now time.Time) {
	m.setState(api.HostLost, now)
	m.end(m.Epoch, "host "+m.Host+" lost: its agent was silent for "+(api.HostHeartbeatTimeout+api.HostGrace).String())
}

// end has the workers notified that all epochs up to this one have ended.
func (m *membership) end(epoch int64, reason string) {
	ended := &api.EndEpochRequest{Host: m.Host, Epoch: epoch, Reason: reason, Usage: m.Last}
	if m.Ended != nil && m.Ended.Epoch == epoch {
		ended.Usage = m.Ended.Usage
	}
	m.Ended, m.Last = ended, nil
}

func (m *membership) setState(s api.HostState, now time.Time) {
	if m.State != s {
		m.State, m.Since = s, now
	}
}
