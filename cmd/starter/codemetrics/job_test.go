package codemetrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// requireAll requires that each of n files was counted once and no lease is held.
func requireAll(t *testing.T, f *fakePool, s Summary, n int) {
	t.Helper()
	sum := int64(n) * int64(n-1) / 2
	require.Equal(t, n, s.Files)
	require.EqualValues(t, 10*n, s.Bytes)
	require.EqualValues(t, 2*n, s.Lines)
	require.EqualValues(t, n-1, s.Functions, "number 3 does not parse")
	require.Equal(t, sum-3, s.Complexity)
	require.Equal(t, 1, s.Problems, "one is Python 2")
	require.Equal(t, n-1, s.Worst[0].Complexity)
	require.Eventually(t, func() bool { return len(f.held()) == 0 }, waitTimeout, time.Millisecond, "leases that are not checked in")
}

func TestEveryFileIsCountedOnce(t *testing.T) {
	f := newFakePool(t, 3)
	var reports []Progress
	s, err := f.measureAll(100, func(c *Config) { c.Progress = func(p Progress) { reports = append(reports, p) } })
	require.NoError(t, err)
	requireAll(t, f, s, 100)
	require.Equal(t, 15, s.Calls)
	require.Zero(t, s.Retried)
	require.Len(t, s.Worst, topFunctions)
	require.Len(t, reports, 15)
	require.Equal(t, 100, reports[14].Files)
	require.Equal(t, 100, reports[14].Total)
	require.NotZero(t, s.Leases)
	require.GreaterOrEqual(t, len(f.outcomes), s.Leases, "the client also returns a lease that was granted as the job ended")
	require.Equal(t, []string{"ok"}, slices.Compact(f.outcomes))
}

func TestADuplicatePathIsCountedOnce(t *testing.T) {
	f := newFakePool(t, 2)
	s, err := f.measureAll(20, func(c *Config) { c.Files = append(c.Files, c.Files...) })
	require.NoError(t, err)
	requireAll(t, f, s, 20)
}

func TestAJobWithoutFilesTakesNoLease(t *testing.T) {
	f := newFakePool(t, 2)
	s, err := f.measureAll(0, nil)
	require.NoError(t, err)
	require.Zero(t, s.Files)
	require.Zero(t, s.Leases)
}

func TestFailedCallsAreRetriedAndNothingIsCountedTwice(t *testing.T) {
	failures := map[string]func(f *fakePool, w http.ResponseWriter, lease string, paths []string){
		"the worker was killed": func(f *fakePool, w http.ResponseWriter, lease string, _ []string) {
			f.kill(lease)
			refuse(w, http.StatusBadGateway, api.CodeWorkerCrashed, true)
		},
		"the lease was fenced": func(f *fakePool, w http.ResponseWriter, lease string, _ []string) {
			f.kill(lease)
			refuse(w, http.StatusConflict, api.CodeLeaseFenced, false)
		},
		"the lease is not known": func(f *fakePool, w http.ResponseWriter, lease string, _ []string) {
			f.kill(lease)
			refuse(w, http.StatusNotFound, api.CodeLeaseNotFound, false)
		},
		"the call timed out": func(_ *fakePool, w http.ResponseWriter, _ string, _ []string) {
			refuse(w, http.StatusGatewayTimeout, api.CodeDeadlineExceeded, true)
		},
		"the worker drains": func(_ *fakePool, w http.ResponseWriter, _ string, _ []string) {
			refuse(w, http.StatusServiceUnavailable, api.CodeDraining, false)
		},
		"the method failed": func(_ *fakePool, w http.ResponseWriter, _ string, _ []string) {
			refuse(w, http.StatusInternalServerError, api.CodeWorkerError, true)
		},
		"the gateway died before the answer": func(*fakePool, http.ResponseWriter, string, []string) {
			panic(http.ErrAbortHandler)
		},
		"the gateway died during the answer": func(_ *fakePool, w http.ResponseWriter, _ string, paths []string) {
			answer, _ := json.Marshal(measured(paths))
			_, _ = w.Write(answer[:len(answer)/2])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"half of the answer is missing": func(_ *fakePool, w http.ResponseWriter, _ string, paths []string) {
			_ = json.NewEncoder(w).Encode(measured(paths)[:len(paths)/2])
		},
		"a file is in the answer twice": func(_ *fakePool, w http.ResponseWriter, _ string, paths []string) {
			twice := append([]string{paths[0]}, paths[:len(paths)-1]...)
			if len(paths) == 1 {
				twice = []string{paths[0], paths[0]}
			}
			_ = json.NewEncoder(w).Encode(measured(twice))
		},
	}
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			f := newFakePool(t, 3)
			var calls atomic.Int64
			f.answer = func(w http.ResponseWriter, _ *http.Request, lease string, paths []string) bool {
				if calls.Add(1)%4 != 1 {
					return false
				}
				fail(f, w, lease, paths)
				return true
			}
			s, err := f.measureAll(60, func(c *Config) { c.MaxAttempts = 20 })
			require.NoError(t, err)
			requireAll(t, f, s, 60)
			require.Positive(t, s.Retried)
		})
	}
}

func TestOnlyATimeoutReplacesTheWorker(t *testing.T) {
	f := newFakePool(t, 1)
	var once sync.Once
	f.answer = func(w http.ResponseWriter, _ *http.Request, _ string, _ []string) (mine bool) {
		once.Do(func() {
			mine = true
			refuse(w, http.StatusGatewayTimeout, api.CodeDeadlineExceeded, true)
		})
		return mine
	}
	s, err := f.measureAll(10, nil)
	require.NoError(t, err)
	requireAll(t, f, s, 10)
	require.Equal(t, []string{"close", "ok"}, f.outcomes)
}

// Workers die before a call reaches them, during the call and between calls.
func TestTheJobSurvivesConstantCrashes(t *testing.T) {
	f := newFakePool(t, 4)
	f.answer = func(w http.ResponseWriter, _ *http.Request, lease string, paths []string) bool {
		switch rand.N(4) {
		case 0:
			f.kill(lease)
			refuse(w, http.StatusBadGateway, api.CodeWorkerCrashed, true)
			return true
		case 1:
			_ = json.NewEncoder(w).Encode(measured(paths))
			f.kill(lease)
			return true
		}
		return false
	}
	s, err := f.measureAll(200, func(c *Config) { c.MaxAttempts = 50 })
	require.NoError(t, err)
	requireAll(t, f, s, 200)
}

func TestAFileThatFailsEveryCallFailsTheJobByName(t *testing.T) {
	for _, code := range []api.Code{api.CodeWorkerCrashed, api.CodeWorkerError} {
		f := newFakePool(t, 3)
		var alone atomic.Int64
		f.answer = func(w http.ResponseWriter, _ *http.Request, lease string, paths []string) bool {
			for _, path := range paths {
				if path == "/f/17.py" {
					if len(paths) == 1 {
						alone.Add(1)
					}
					if code == api.CodeWorkerCrashed {
						f.kill(lease)
					}
					refuse(w, http.StatusBadGateway, code, true)
					return true
				}
			}
			return false
		}
		s, err := f.measureAll(50, func(c *Config) { c.MaxAttempts = 3 })
		require.ErrorContains(t, err, "cannot measure /f/17.py (3 failed calls)")
		require.Equal(t, code, api.CodeOf(err))
		require.EqualValues(t, 3, alone.Load())
		require.Less(t, s.Files, 50)
		require.Eventually(t, func() bool { return len(f.held()) == 0 }, waitTimeout, time.Millisecond)
	}
}

func TestTheLeaseOfALongCallIsRenewed(t *testing.T) {
	f := newFakePool(t, 1)
	f.ttl = 6 * time.Second // a client that is not run for most of it loses the lease
	f.answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ []string) bool {
		renewed := func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.renewals
		}
		for start := renewed(); renewed() < start+3; { // longer than the TTL
			select {
			case <-r.Context().Done():
				return false
			case <-time.After(time.Millisecond):
			}
		}
		return false
	}
	s, err := f.measureAll(7, nil) // by one call
	require.NoError(t, err)
	requireAll(t, f, s, 7)
	require.Equal(t, 1, s.Leases)
	require.Zero(t, s.Retried)
}

func TestTheJobWaitsForWorkersUntilItStalls(t *testing.T) {
	f := newFakePool(t, 2)
	f.refuse = func() api.Code { return api.CodeStarting }
	for stall := 200 * time.Millisecond; ; stall *= 2 { // until a checkout is refused before
		_, err := f.measureAll(5, func(c *Config) { c.StallTimeout = stall })
		require.ErrorContains(t, err, fmt.Sprintf("no file was measured for %s", stall))
		if errors.Is(err, api.ErrStarting) {
			break
		}
		require.Less(t, stall, 10*time.Second, "%v", err)
	}

	refusals := 5
	f.refuse = func() api.Code {
		if refusals--; refusals > 0 {
			return api.CodeStarting
		}
		return ""
	}
	s, err := f.measureAll(20, nil)
	require.NoError(t, err)
	requireAll(t, f, s, 20)
}

func TestAMissingPoolFailsTheJob(t *testing.T) {
	f := newFakePool(t, 2)
	f.refuse = func() api.Code { return api.CodePoolNotFound }
	_, err := f.measureAll(5, nil)
	require.ErrorIs(t, err, api.ErrPoolNotFound)
}

func TestACancelledJobChecksInItsLeases(t *testing.T) {
	f := newFakePool(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	var calls atomic.Int64
	f.answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ []string) bool {
		if calls.Add(1) < 4 {
			return false
		}
		cancel()
		<-r.Context().Done() // the worker sees the cancellation
		return true
	}
	s, err := Run(ctx, Config{Client: f.client, Pool: "p", Files: numbered(50), BatchFiles: 5, Concurrency: 2})
	require.ErrorIs(t, err, context.Canceled)
	require.LessOrEqual(t, s.Files, 15, "three calls were answered, and what the others brought does not count")
	require.Eventually(t, func() bool { return len(f.held()) == 0 }, waitTimeout, time.Millisecond, "also a lease that was granted at that moment")
}
