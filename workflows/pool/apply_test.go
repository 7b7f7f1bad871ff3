package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// Two operators change the spec of one version: the second one does not undo the change of the first.
func TestAnApplyOfAnotherVersionIsRefused(t *testing.T) {
	p := newFakePool(t)
	first := p.UpdateAt(5*time.Second, api.UpdateApply,
		api.ApplyRequest{Spec: specOf(2, "first"), IfVersion: 1, By: "ann", Reason: "a fix"})
	second := p.UpdateAt(5*time.Second, api.UpdateApply,
		api.ApplyRequest{Spec: specOf(2, "second"), IfVersion: 1, By: "bob"})
	p.At(6*time.Second, func() { require.Equal(t, "apply of spec version 2: a fix (by ann)", p.status().Rollout.Reason) })
	p.At(20*time.Second, func() { require.Equal(t, []string{"first"}, p.status().Spec.Pool.Command) })
	size := p.UpdateAt(20*time.Second, api.UpdateApply,
		api.ApplyRequest{Spec: specOf(3, "first"), IfVersion: 2, By: "cid", Reason: "more load"})
	again := p.UpdateAt(30*time.Second, api.UpdateApply,
		api.ApplyRequest{Spec: specOf(3, "second"), IfVersion: 2, By: "bob"})
	p.runUntil(60*time.Second, poolOf(2))
	require.Equal(t, api.ApplyResult{SpecVersion: 2, Changed: true}, first.Value)
	require.ErrorContains(t, requireRefused(t, second, api.CodeVersionConflict), "has spec version 2, not 1")
	require.Equal(t, api.ApplyResult{SpecVersion: 2}, size.Value)
	require.Equal(t, api.ApplyResult{SpecVersion: 3, Changed: true}, again.Value)
	require.Equal(t, []string{
		`/pools/t pool.applied {"spec_version":2,"reason":"a fix (by ann)"}`,
		`/pools/t pool.scaled {"from":2,"to":3,"reason":"more load (by cid)"}`,
		`/pools/t pool.applied {"spec_version":3,"reason":"requested by bob"}`,
	}, p.emitted)
}
