package codemetrics

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// requireAll says that each of n files was counted once, and that no lease is out.
func requireAll(t *testing.T, f *fakePool, s Summary, n int) {
	t.Helper()
	sum := int64(n) * int64(n-1) / 2
	require.Equal(t, n, s.Files)
	require.EqualValues(t, 10*n, s.Bytes)
	require.EqualValues(t, 2*n, s.Lines)
	require.EqualValues(t, n-1, s.Functions, "number 3 does not parse")
	require.Equal(t, sum-3, s.Complexity)
	require.Equal(t, []Problem{{"/f/3.py", "SyntaxError: this one is Python 2"}}, s.Problems)
	require.Equal(t, n-1, s.Worst[0].Complexity)
	require.Empty(t, f.out(), "leases that nobody gave back")
}

func TestEveryFileIsCountedOnce(t *testing.T) {
	f := newFakePool(t, 3)
	var told []Progress
	s, err := f.measureAll(100, func(c *Config) { c.Progress = func(p Progress) { told = append(told, p) } })
	require.NoError(t, err)
	requireAll(t, f, s, 100)
	require.Equal(t, 15, s.Calls)
	require.Zero(t, s.Repeated)
	require.Len(t, s.Worst, DefaultTop)
	require.Len(t, told, 15)
	require.Equal(t, 100, told[14].Files)
	require.Equal(t, 100, told[14].Total)
	var usage api.Usage
	for _, c := range f.checkins {
		require.Equal(t, api.OutcomeOK, c.Outcome)
		usage.Requests += c.Usage.Requests
		usage.Failed += c.Usage.Failed
	}
	require.EqualValues(t, 15, usage.Requests)
	require.Zero(t, usage.Failed)
}

func TestTheGatewayMayListenOnASocket(t *testing.T) {
	f := newFakePool(t, 2)
	f.listenOnSocket()
	s, err := f.measureAll(30, nil)
	require.NoError(t, err)
	requireAll(t, f, s, 30)
}

func TestAFileGivenTwiceIsCountedOnce(t *testing.T) {
	f := newFakePool(t, 2)
	s, err := f.measureAll(20, func(c *Config) { c.Files = append(c.Files, c.Files...) })
	require.NoError(t, err)
	requireAll(t, f, s, 20)
}

func TestNoFilesIsNoWork(t *testing.T) {
	f := newFakePool(t, 2)
	s, err := f.measureAll(0, nil)
	require.NoError(t, err)
	require.Zero(t, s.Files)
	require.Zero(t, s.Leases)
}

func TestCallsThatBreakOffAreMadeAgainAndNothingIsCountedTwice(t *testing.T) {
	breaks := map[string]func(f *fakePool, w http.ResponseWriter, lease string, paths []string){
		"the worker was killed": func(f *fakePool, w http.ResponseWriter, lease string, _ []string) {
			f.kill(lease)
			refuseCall(w, http.StatusBadGateway, api.CodeWorkerCrashed, true)
		},
		"the lease was fenced": func(f *fakePool, w http.ResponseWriter, lease string, _ []string) {
			f.kill(lease)
			refuseCall(w, http.StatusConflict, api.CodeLeaseFenced, false)
		},
		"the lease is not known": func(f *fakePool, w http.ResponseWriter, lease string, _ []string) {
			f.kill(lease)
			refuseCall(w, http.StatusNotFound, api.CodeLeaseNotFound, false)
		},
		"the time was up": func(_ *fakePool, w http.ResponseWriter, _ string, _ []string) {
			refuseCall(w, http.StatusGatewayTimeout, api.CodeDeadlineExceeded, true)
		},
		"the worker drains": func(_ *fakePool, w http.ResponseWriter, _ string, _ []string) {
			refuseCall(w, http.StatusServiceUnavailable, api.CodeDraining, false)
		},
		"the method failed": func(_ *fakePool, w http.ResponseWriter, _ string, _ []string) {
			refuseCall(w, http.StatusInternalServerError, api.CodeWorkerError, true)
		},
		"the gateway died before the answer": func(*fakePool, http.ResponseWriter, string, []string) {
			panic(http.ErrAbortHandler)
		},
		"the gateway died in mid-answer": func(_ *fakePool, w http.ResponseWriter, _ string, paths []string) {
			answer, _ := json.Marshal(measured(paths))
			_, _ = w.Write(answer[:len(answer)/2])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"half of the answer is missing": func(_ *fakePool, w http.ResponseWriter, _ string, paths []string) {
			_ = json.NewEncoder(w).Encode(measured(paths)[:len(paths)/2])
		},
		"a file is answered twice": func(_ *fakePool, w http.ResponseWriter, _ string, paths []string) {
			twice := append([]string{paths[0]}, paths[:len(paths)-1]...)
			if len(paths) == 1 {
				twice = []string{paths[0], paths[0]}
			}
			_ = json.NewEncoder(w).Encode(measured(twice))
		},
	}
	for name, breakOff := range breaks {
		t.Run(name, func(t *testing.T) {
			f := newFakePool(t, 3)
			var calls atomic.Int64
			f.answer = func(w http.ResponseWriter, _ *http.Request, lease string, paths []string) bool {
				if calls.Add(1)%4 != 1 {
					return false
				}
				breakOff(f, w, lease, paths)
				return true
			}
			s, err := f.measureAll(60, func(c *Config) { c.MaxAttempts = 20 })
			require.NoError(t, err)
			requireAll(t, f, s, 60)
			require.Positive(t, s.Repeated)
		})
	}
}

func TestAWorkerIsReplacedWhenItsTimeWasUpOnly(t *testing.T) {
	f := newFakePool(t, 1)
	var once sync.Once
	f.answer = func(w http.ResponseWriter, _ *http.Request, _ string, _ []string) (mine bool) {
		once.Do(func() {
			mine = true
			refuseCall(w, http.StatusGatewayTimeout, api.CodeDeadlineExceeded, true)
		})
		return mine
	}
	s, err := f.measureAll(10, nil)
	require.NoError(t, err)
	requireAll(t, f, s, 10)
	require.Len(t, f.checkins, 2)
	require.Equal(t, api.OutcomeClose, f.checkins[0].Outcome)
	require.EqualValues(t, 1, f.checkins[0].Usage.Failed)
	require.Equal(t, api.OutcomeOK, f.checkins[1].Outcome)
}

// Workers die all the time, at any moment: before a call reaches them, in its midst, and between calls.
func TestTheJobSurvivesWorkersThatDieAllTheTime(t *testing.T) {
	f := newFakePool(t, 4)
	f.answer = func(w http.ResponseWriter, _ *http.Request, lease string, paths []string) bool {
		switch rand.N(4) {
		case 0:
			f.kill(lease)
			refuseCall(w, http.StatusBadGateway, api.CodeWorkerCrashed, true)
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

func TestAFileThatKillsEveryWorkerEndsTheJobByName(t *testing.T) {
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
					refuseCall(w, http.StatusBadGateway, code, true)
					return true
				}
			}
			return false
		}
		s, err := f.measureAll(50, func(c *Config) { c.MaxAttempts = 3 })
		require.ErrorContains(t, err, "/f/17.py could not be measured in 3 calls")
		require.Equal(t, code, api.CodeOf(err))
		require.EqualValues(t, 3, alone.Load())
		require.Less(t, s.Files, 50)
		require.Empty(t, f.out())
	}
}

func TestALeaseIsRenewedBeforeACallThatItMightNotOutlast(t *testing.T) {
	f := newFakePool(t, 1)
	f.ttl = 2 * time.Second // what is left of the leases, of which the job wants half of a minute at least
	s, err := f.measureAll(30, nil)
	require.NoError(t, err)
	requireAll(t, f, s, 30)
	require.Equal(t, s.Calls, f.renewals)
}

func TestTheJobWaitsForWorkersButNotForever(t *testing.T) {
	f := newFakePool(t, 2)
	f.refuse = func() error { return api.Errorf(api.CodeNoWorkers, "all are starting") }
	began := time.Now()
	_, err := f.measureAll(5, func(c *Config) { c.Patience = 200 * time.Millisecond })
	require.ErrorContains(t, err, "no file was measured for 200ms")
	require.ErrorContains(t, err, "all are starting")
	require.Less(t, time.Since(began), 10*time.Second)

	refusals := 5
	f.refuse = func() error {
		if refusals--; refusals > 0 {
			return api.ErrStarting
		}
		return nil
	}
	s, err := f.measureAll(20, nil)
	require.NoError(t, err)
	requireAll(t, f, s, 20)
}

func TestAPoolThatIsNotThereEndsTheJobAtOnce(t *testing.T) {
	f := newFakePool(t, 2)
	f.refuse = func() error { return api.ErrPoolNotFound }
	_, err := f.measureAll(5, nil)
	require.ErrorIs(t, err, api.ErrPoolNotFound)
}

func TestACancelledJobGivesItsLeasesBack(t *testing.T) {
	f := newFakePool(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	var calls atomic.Int64
	f.answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ []string) bool {
		if calls.Add(1) < 4 {
			return false
		}
		cancel()
		<-r.Context().Done() // the worker sees that nobody waits
		return true
	}
	config, err := Config{Files: numbered(50), BatchFiles: 5}.complete()
	require.NoError(t, err)
	s, err := run(ctx, config, f)
	require.ErrorIs(t, err, context.Canceled)
	require.LessOrEqual(t, s.Files, 15, "three calls were answered, and what the others brought does not count")
	require.Empty(t, f.out())
}
