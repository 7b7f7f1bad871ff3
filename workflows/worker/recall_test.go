package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
)

// A gateway that uses its lease is asked for it seldom, however many clients ask for the worker, even when the worker
// continues as new.
func TestARefusedRecallIsRemembered(t *testing.T) {
	for name, continues := range map[string]bool{"one run": false, "continues as new": true} {
		t.Run(name, func(t *testing.T) {
			s := newWorkerEnv(t)
			recalls := 0
			s.onRecall = func(api.RecallRequest) (api.RecallResult, error) {
				s.count(&recalls)
				return api.RecallResult{}, nil
			}
			s.At(time.Second, s.signal(api.SignalCheckout, api.CheckoutRequest{Holder: api.GatewayHolderPrefix + "h"}))
			var answers []*workflowtest.UpdateResult
			for i := range 50 {
				s.At(2*time.Second+time.Duration(i)*200*time.Millisecond, func() {
					for range 5 {
						answers = append(answers, s.update(api.UpdateCheckout, api.CheckoutRequest{Holder: "client"}))
					}
				})
			}
			if continues {
				for i := range 3 {
					s.At(2500*time.Millisecond+time.Duration(i)*3*time.Second, s.signal(api.SignalForceContinue, api.Control{}))
				}
			}
			s.At(13*time.Second, s.cancel)
			s.run(standalone())
			require.Equal(t, 4, s.counted(&recalls), "after 0, 1, 3 and 7 s")
			require.Len(t, answers, 250)
			atNoCost := 0
			for _, a := range answers {
				require.True(t, a.Rejected != nil || a.Err != nil, "the gateway keeps its lease")
				if a.Rejected != nil {
					atNoCost++
				}
			}
			require.GreaterOrEqual(t, atNoCost, 230, "refused by the validator")
		})
	}
}

func TestARecallAfterALaterLeaseIsNotHeldBack(t *testing.T) {
	s := newWorkerEnv(t)
	asked, inUse := map[string]int{}, true
	s.onRecall = func(r api.RecallRequest) (api.RecallResult, error) {
		s.counting.Lock()
		defer s.counting.Unlock()
		asked[r.LeaseID]++
		if inUse {
			return api.RecallResult{}, nil
		}
		return api.RecallResult{Returned: true, Checkin: &api.CheckinRequest{LeaseID: r.LeaseID}}, nil
	}
	gateway := api.CheckoutRequest{Holder: api.GatewayHolderPrefix + "h"}
	var refused, granted *workflowtest.UpdateResult
	s.At(time.Second, s.signal(api.SignalCheckout, gateway))
	s.At(2*time.Second, func() { refused = s.update(api.UpdateCheckout, api.CheckoutRequest{Holder: "client"}) })
	s.At(2100*time.Millisecond, s.signal(api.SignalCheckin, api.CheckinRequest{LeaseID: "t.0.1.1"}))
	s.At(2200*time.Millisecond, s.signal(api.SignalCheckout, gateway))
	s.At(2300*time.Millisecond, func() {
		inUse = false
		granted = s.update(api.UpdateCheckout, api.CheckoutRequest{Holder: "client"})
	})
	s.At(3*time.Second, s.cancel)
	s.run(standalone())
	require.Error(t, refused.Err)
	require.NoError(t, granted.Rejected)
	require.Equal(t, "t.0.1.3", granted.Value.(*api.Lease).ID)
	require.Equal(t, map[string]int{"t.0.1.1": 1, "t.0.1.2": 1}, asked)
}
