package gateway

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/spec"
)

// Calls of the pool and leases that the gateway has not granted race for isolated processes: each process serves one
// call, or the calls of one lease.
func TestAnIsolatedProcessServesOneUse(t *testing.T) {
	t.Parallel()
	e := open(t, 2, withSpec(func(sp *spec.Spec) {
		sp.Isolation.By, sp.Start.Fork, sp.Queue.Timeout = spec.IsolateUse, true, spec.Duration(timeout)
	}))
	var mu sync.Mutex
	uses := map[string]string{} // by process
	served := func(use string, a answer) {
		require.Equal(t, 200, a.status, "%s", a.body)
		mu.Lock()
		defer mu.Unlock()
		pid := strings.TrimSpace(string(a.body))
		if other, used := uses[pid]; used {
			require.Equal(t, other, use, "process %s has served two uses", pid)
		}
		uses[pid] = use
	}
	var all sync.WaitGroup
	for client := range 6 {
		all.Go(func() {
			for i := range 12 {
				served("call "+strconv.Itoa(client)+" "+strconv.Itoa(i), e.do("POST", "/v1/pools/p/call/pid", nil))
			}
		})
	}
	for slot := range 2 {
		all.Go(func() {
			for range 6 {
				lease := e.lease(slot, "client")
				path := "/v1/leases/" + lease.ID + "~" + lease.Token
				for range 3 {
					served(lease.ID, e.do("POST", path+"/call/pid", nil))
				}
				require.Equal(t, 200, e.do("DELETE", path, nil).status)
			}
		})
	}
	all.Wait()
	require.Len(t, uses, 6*12+2*6)
	for _, p := range e.processes.List() {
		require.EqualValues(t, 1, p.Incarnation(), "the workflow sees one incarnation")
		require.Greater(t, p.Info().Number, int64(10))
	}

	// A failed call is a use, too; so is one whose program asks to be replaced.
	for _, method := range []string{"fail", "bug", "fatal"} {
		e.do("POST", "/v1/pools/p/call/"+method, nil)
		served(method, e.do("POST", "/v1/pools/p/call/pid", nil))
	}
	for _, p := range e.processes.List() {
		require.False(t, p.HasEnded())
	}
}
