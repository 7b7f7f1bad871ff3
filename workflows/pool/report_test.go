package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

func TestAPoolReportsWhatItKnowsOfItsWorkers(t *testing.T) {
	p := newFakePool(t)
	report := func() policy.Report { return workflowtest.Query[policy.Report](t, p.Script, api.QueryReport) }
	p.At(5*time.Second, func() {
		r := report()
		require.Equal(t, policy.StatusHealthy, r.Overview.Status)
		require.Equal(t, 3, r.Overview.Ready)
		require.Empty(t, r.Alerts)
		require.Equal(t, []string{"Nothing to do."}, r.Recommendations)
		require.Nil(t, r.Resources, "a pool knows no figures of its workers")
		p.Update(api.UpdateApply, api.ApplyRequest{Spec: specOf(3, neverStarts)})
	})
	p.At(30*time.Second, func() {
		r := report()
		require.Equal(t, policy.StatusShort, r.Overview.Status)
		require.Len(t, r.Health, 3)
		require.Contains(t, r.Alerts[0].Text, "The rolling restart has halted")
		require.Contains(t, r.Alerts[0].Text, "the model file is missing")
		require.Equal(t, api.WorkerName(r.Pool, 0), r.Alerts[1].Worker)
		require.Len(t, r.Recommendations, 2)
		require.Contains(t, r.Recommendations[1], "/0")
	})
	p.runUntil(31*time.Second, poolOf(3))
}
