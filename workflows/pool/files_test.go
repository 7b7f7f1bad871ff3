package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestChangedFilesRestartTheWorkersOfTheirHost(t *testing.T) {
	p := newFakePool(t)
	p.At(4*time.Second, func() { p.placeOn("a", "b") })
	p.signalAt(5*time.Second, api.SignalFilesChanged,
		api.FilesChanged{Pool: "t", Host: "a", Files: []string{"/srv/model.py", "/srv/x.py"}})
	p.At(time.Minute, func() {
		for i, a := range p.workers {
			require.Len(t, a.timesOf(api.SignalRestart), 1-i%2, "worker %d", i)
		}
		r := p.workers[0].received[0].message.(api.Order)
		require.Equal(t, "file /srv/model.py changed, and 1 more on host a", r.Reason)
		require.Equal(t, api.CauseFiles, r.Cause)
	})
	p.runUntil(2*time.Minute, poolOf(4))
	require.Equal(t, 1, p.peak)
}
