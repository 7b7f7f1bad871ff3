package affinity

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFollowDoesNotUndoAMove(t *testing.T) {
	table := New(nil)
	table.Follow("p", "s", "", "p/0")
	require.Equal(t, "p/0", table.Where("p", "s"))
	table.Follow("p", "s", "p/0", "p/1")
	require.Equal(t, "p/1", table.Where("p", "s"), "the last worker that served it")
	require.True(t, table.Move("p", "s", "p/1", "p/2"))
	table.Follow("p", "s", "p/1", "p/1")
	require.Equal(t, "p/2", table.Where("p", "s"))
	require.Empty(t, table.stats, "Where counts no lookup")
}

func TestMoveFailsIfTheSessionIsBoundToAThirdWorker(t *testing.T) {
	table := New(nil)
	require.True(t, table.Move("p", "s", "p/0", "p/1"), "an unbound session")
	require.True(t, table.Move("p", "s", "p/0", "p/1"), "again")
	require.False(t, table.Move("p", "s", "p/0", "p/2"))
	require.True(t, table.Move("p", "s", "p/1", "p/2"))
	table.UnbindFrom("p", "s", "p/1")
	require.Equal(t, "p/2", table.Where("p", "s"))
	table.UnbindFrom("p", "s", "p/2")
	require.Empty(t, table.Where("p", "s"))
}

func TestAClosedWorkerKeepsItsSessionsAndAcceptsNoNewOnes(t *testing.T) {
	now := time.Now()
	table := New(func() time.Time { return now })
	table.Bind("p", "old", "p/0")
	table.Close("p/0", 2*time.Minute)
	table.Close("q/0", time.Minute)
	require.Equal(t, []string{"p/0"}, table.Closed("p"))
	table.Follow("p", "new", "", "p/0")
	require.Empty(t, table.Where("p", "new"))
	now = now.Add(time.Minute)
	table.Follow("p", "old", "p/0", "p/0")
	now = now.Add(DefaultTTL - time.Second)
	require.Equal(t, "p/0", table.Where("p", "old"), "Follow extends the binding")
	require.Empty(t, table.Closed("p"))
	table.Follow("p", "new", "", "p/0")
	require.Equal(t, "p/0", table.Where("p", "new"))

	table.Close("p/0", time.Hour)
	require.Equal(t, 2, table.UnbindWorker("p/0"))
	require.Empty(t, table.Closed("p"), "UnbindWorker reopens the worker")
	table.Close("p/0", time.Hour)
	table.Close("p/0", 0)
	require.Empty(t, table.Closed("p"))
}

func TestSessionsAreCountedPerWorkerAndListedInPages(t *testing.T) {
	now := time.Now()
	table := New(func() time.Time { return now })
	table.Bind("p", "gone", "p/0")
	now = now.Add(DefaultTTL)
	for i := range 5 {
		table.Bind("p", fmt.Sprint("s", 4-i), "p/0")
	}
	table.Bind("p", "other", "p/1")
	table.Bind("pp", "s0", "pp/0")
	require.Equal(t, map[string]int{"p/0": 5, "p/1": 1}, table.Counts("p"))
	page, more := table.Page("p/0", "", 3)
	require.Equal(t, []string{"s0", "s1", "s2"}, page)
	require.True(t, more)
	page, more = table.Page("p/0", "s2", 3)
	require.Equal(t, []string{"s3", "s4"}, page)
	require.False(t, more)
}
