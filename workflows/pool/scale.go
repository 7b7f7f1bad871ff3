package pool

import (
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// scaleStatus is the demand as the pool's status shows it.
func (p *pool) scaleStatus() *api.ScaleStatus {
	if !p.Spec.Scale.Follows() {
		return nil
	}
	load := load(p.Demand)
	return &api.ScaleStatus{
		Min: p.Spec.Scale.Min, Max: p.Spec.Scale.Max, Wanted: policy.ScaleOf(p.Spec).Wanted(load), Load: load,
		Reason: p.ScaleReason, Cause: p.ScaleCause,
		Demand: p.Demand, Decisions: p.Decisions,
	}
}

// scaleRefusal is why a request cannot be carried out, or nil.
func (p *pool) scaleRefusal(r api.ScaleRequest) *api.Error {
	if r.Bounds != nil {
		if r.Size != 0 {
			return api.Errorf(api.CodeInvalid, "size (%d) and bounds are mutually exclusive; set one of them", r.Size)
		}
		next := p.Spec
		next.Scale = p.boundedScale(*r.Bounds)
		if err := next.Validate(); err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		return p.stoppingRefusal()
	}
	if s := p.Spec.Scale; s.Follows() && (r.Size < s.Lowest() || r.Size > s.Max) {
		return api.Errorf(api.CodeInvalid,
			"size is %d; it must be from %d to %d, the bounds of the pool; change them with tempool pool scale %s MIN..MAX",
			r.Size, s.Lowest(), s.Max, p.name())
	} else if !s.Follows() && (r.Size < 1 || r.Size > maxSize) {
		return api.Errorf(api.CodeInvalid, "size is %d; it must be from 1 to %d (to have no worker, stop the pool)", r.Size,
			maxSize)
	}
	return p.stoppingRefusal()
}

// boundedScale is the [scale] section with these bounds. Without a maximum the other keys have no effect.
func (p *pool) boundedScale(b api.ScaleBounds) spec.Scale {
	s := p.Spec.Scale
	if b.Max == 0 {
		s = spec.Default().Scale
	}
	if b.Min > 0 {
		s.IdleToZero = 0
	}
	s.Min, s.Max = b.Min, b.Max
	return s
}

// scale sets the size or its bounds.
func (p *pool) scale(_ workflow.Context, r api.ScaleRequest) (api.ScaleResult, error) {
	from, reason := p.Size, attribution(r.Reason, r.By)
	if r.Bounds != nil {
		p.Spec.Scale = p.boundedScale(*r.Bounds)
		p.followSpec(reason)
	} else {
		p.members.resize(r.Size, reason)
		p.Spec.Pool.Size = max(r.Size, 1)
		p.Scaling = policy.Scaling{} // the demand may change it no sooner than any other size
	}
	p.WakeUp()
	result := api.ScaleResult{From: from, To: p.Size}
	if s := p.Spec.Scale; s.Follows() {
		result.Bounds = &api.ScaleBounds{Min: s.Min, Max: s.Max}
	}
	return result, nil
}

// followSpec sets the size after a change of the spec for a reason: where it follows demand, it is only raised to the
// minimum, because workers in use stay.
func (p *pool) followSpec(reason string) {
	if !p.Spec.Scale.Follows() {
		p.ScalingState = ScalingState{}
		p.members.resize(p.Spec.Pool.Size, reason)
		return
	}
	if size := max(p.Size, p.Spec.Scale.Min); size > p.Size {
		p.members.resize(size, reason)
	}
	p.Scaling = policy.Scaling{}
}
