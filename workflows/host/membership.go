package host

import (
	"time"

	"github.com/tempool/tempool/api"
)

// membership is who holds a host id.
type membership struct {
	api.HostStatus
	// Lineage is that of the agent that holds the id, or held it last.
	Lineage string `json:"lineage,omitempty"`
	// JoinedAt is when the present epoch began.
	JoinedAt time.Time `json:"joined_at,omitzero"`
}

// join decides about an agent that announces itself. It is refused as api.CodeHostTaken while an agent of another lineage is alive, and when
// the epoch it had was taken over by another instance. A repeated join keeps its epoch; every other one begins the next.
func (m membership) join(r api.JoinRequest, now time.Time) (membership, *api.Error) {
	if r.Instance == "" || r.Lineage == "" {
		return m, api.Errorf(api.CodeInvalid, "join needs an instance and a lineage")
	}
	same := r.Instance == m.Instance
	switch {
	case same && m.State.Alive():
		m.setState(api.HostUp, now)
		return m.describe(r), nil
	case !same && m.State.Alive() && (r.Lineage != m.Lineage || r.Epoch > 0):
		return m, api.Errorf(api.CodeHostTaken, "host id %q is held by agent %s (%s) since %s, epoch %d",
			m.Host, m.Instance, m.Machine, m.JoinedAt.UTC().Format(time.RFC3339), m.Epoch).After(api.HostHeartbeatTimeout)
	}
	m.Epoch = max(m.Epoch, r.Epoch) + 1
	m.Instance, m.Lineage, m.JoinedAt, m.State = r.Instance, r.Lineage, now, ""
	m.setState(api.HostUp, now)
	return m.describe(r), nil
}

func (m membership) describe(r api.JoinRequest) membership {
	m.Labels, m.Capacity, m.Endpoint, m.Machine = r.Labels, r.Capacity, r.Endpoint, r.Machine
	return m
}

// leave ends an epoch whose agent shuts down; an older epoch changes nothing.
func (m membership) leave(epoch int64, now time.Time) membership {
	if epoch == m.Epoch && m.State.Alive() {
		m.setState(api.HostLeft, now)
	}
	return m
}

func (m *membership) setState(s api.HostState, now time.Time) {
	if m.State != s {
		m.State, m.Since = s, now
	}
}
