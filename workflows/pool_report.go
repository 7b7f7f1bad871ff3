package workflows

import (
	"fmt"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
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
