package process

import (
	"maps"
	"slices"

	"github.com/tempool/tempool/spec"
)

// ApplyLimits changes the limits of a process that runs, its whole tree included, and returns by which means each is in force then. It
// fails with CodeInvalid where a limit takes a restart, on this host or at all, and with CodeUnavailable when the process has ended.
// Limits set before a failure stay set; calling again with what was in force before takes them back.
func (p *Process) ApplyLimits(l spec.Limits) (map[string]Means, error) {
	select {
	case <-p.exited:
		return nil, coded(CodeUnavailable, nil, "%s has ended, so its limits cannot be changed", p.key())
	default:
	}
	p.applying.Lock()
	defer p.applying.Unlock()
	before := p.Limits()
	if l.CallsPerMinute != before.CallsPerMinute {
		return nil, coded(CodeInvalid, nil, "limits.calls_per_minute belongs to the pool's spec: change it there (ctl pool apply)")
	}
	sp := *p.spec
	sp.Limits = l
	planned, err := planLimits(&sp, p.Worker(), p.supervisor.hostMeans)
	if err != nil {
		return nil, err
	}
	if p.plan.cgroup == nil {
		for key, means := range planned.means {
			if means == ByCgroup {
				planned.means[key] = BySampler // it was born outside
			}
		}
	}
	if err := p.changeOwn(ownLimits(before, coresOf(before, p.Worker(), p.supervisor.hostMeans.cores)), planned.own); err != nil {
		return nil, err
	}
	if p.plan.cgroup != nil {
		if err := p.plan.cgroup.set(planned.cgroup); err != nil {
			return nil, err
		}
	}
	p.limitsMu.Lock()
	defer p.limitsMu.Unlock()
	p.limits, p.limitMeans = l, planned.means
	return maps.Clone(planned.means), nil
}

// ownLimits are the limits that processes hold themselves, whatever the host can do.
func ownLimits(l spec.Limits, cores []int) processLimits {
	return processLimits{
		OpenFiles: uint64(l.OpenFiles), CPUSeconds: wholeSeconds(l.CPUTime.D()), Affinity: cores, Nice: l.Nice, OOMScoreAdj: l.OOMScoreAdj,
	}
}

func (l processLimits) equal(other processLimits) bool {
	return l.OpenFiles == other.OpenFiles && l.CPUSeconds == other.CPUSeconds && l.Nice == other.Nice &&
		l.OOMScoreAdj == other.OOMScoreAdj && slices.Equal(l.Affinity, other.Affinity)
}

// changeRounds look at the tree so often: what a member forked while it was being changed has the old limits.
const changeRounds = 2

// changeOwn changes the limits that each process of the tree holds itself.
func (p *Process) changeOwn(before, after processLimits) error {
	if before.equal(after) {
		return nil
	}
	if !p.supervisor.hostMeans.changeLimits {
		return coded(CodeInvalid, nil, "limits of a running process cannot be changed on %s, but for memory, cpu and processes: restart the worker",
			p.supervisor.hostMeans.unsupported)
	}
	for range changeRounds {
		t, err := glance()
		if err != nil {
			return err
		}
		key := p.treeKey()
		key.pinned = true
		for _, member := range t.members(key) {
			err := changeLimits(member.PID, before, after)
			if now, lives := identify(member.PID); err != nil && lives && now == member.identity {
				return coded(CodeInvalid, err, "the limits of a running process cannot be changed so; restart the worker under the new ones")
			}
		}
	}
	return nil
}
