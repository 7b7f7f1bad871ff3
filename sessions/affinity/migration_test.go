package affinity

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPutAsksAndSaysWhatTheSessionWasBoundTo(t *testing.T) {
	table := New(nil)
	table.Close("p/1", time.Hour)
	for _, c := range []struct {
		was     string
		to      string
		closed  bool
		refused bool
	}{
		{"", "p/1", true, true}, {"", "", false, false}, {"", "p/0", false, false}, {"p/0", "p/0", false, false},
		{"p/0", "", false, true}, {"p/0", "p/1", true, false}, {"p/1", "p/2", false, true}, {"p/1", "", false, false},
	} {
		was, done := table.Put("p", "s", c.to, func(bound string, closed bool) bool {
			require.Equal(t, c.was, bound)
			require.Equal(t, c.closed, closed)
			return !c.refused
		})
		require.Equal(t, c.was, was)
		require.Equal(t, !c.refused, done)
		if c.refused {
			require.Equal(t, c.was, table.Where("p", "s"))
		} else {
			require.Equal(t, c.to, table.Where("p", "s"))
		}
	}
}

func TestAClosedWorkerKeepsItsSessionsAndAcceptsNoNewOnes(t *testing.T) {
	now := time.Now()
	table := New(func() time.Time { return now })
	table.Put("p", "old", "p/0", always)
	table.Close("p/0", 2*time.Minute)
	table.Close("q/0", time.Minute)
	require.Equal(t, []string{"p/0"}, table.Closed("p"))
	ifOpen := func(_ string, closed bool) bool { return !closed }
	table.Put("p", "new", "p/0", ifOpen)
	require.Empty(t, table.Where("p", "new"))
	now = now.Add(time.Minute)
	table.Put("p", "old", "p/0", always)
	now = now.Add(DefaultTTL - time.Second)
	require.Equal(t, "p/0", table.Where("p", "old"), "Put extends the binding")
	require.Empty(t, table.Closed("p"))
	table.Put("p", "new", "p/0", ifOpen)
	require.Equal(t, "p/0", table.Where("p", "new"))

	table.Close("p/0", time.Hour)
	table.UnbindWorker("p/0")
	require.Empty(t, table.Counts("p"))
	require.Empty(t, table.Closed("p"), "UnbindWorker reopens the worker")
	table.Close("p/0", time.Hour)
	table.Close("p/0", 0)
	require.Empty(t, table.Closed("p"))
}
