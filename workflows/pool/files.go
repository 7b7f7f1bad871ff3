package pool

import (
	"fmt"
	"slices"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// filesChanged restarts the workers of the host whose watched files have changed, as watch.mode says.
func (p *pool) filesChanged(f api.FilesChanged) {
	if p.Stopping || len(f.Files) == 0 {
		return
	}
	reason := "file " + f.Files[0] + " changed"
	if more := len(f.Files) - 1 + f.More; more > 0 {
		reason += fmt.Sprintf(", and %d more", more)
	}
	slots := slices.DeleteFunc(p.slots(), func(number int) bool {
		return f.Host != "" && p.slot(number).Host != "" && p.slot(number).Host != f.Host
	})
	if f.Host != "" {
		reason += " on host " + f.Host
	}
	if len(slots) == 0 {
		return
	}
	if p.Rollout != nil { // the new rollout includes what the current one has not done
		for _, number := range p.Rollout.Waiting {
			if !slices.Contains(slots, number) {
				slots = append(slots, number)
			}
		}
		slices.Sort(slots)
	}
	p.throttle.closeBreaker()
	p.disruptions.beginRollout(rollout{Cause: api.CauseFiles, Rollout: api.Rollout{Reason: reason, Waiting: slots},
		AtOnce: p.Spec.Watch.Mode == spec.WatchAll})
	p.WakeUp()
}
