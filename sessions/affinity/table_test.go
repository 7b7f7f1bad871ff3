package affinity

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func always(string, bool) bool { return true }

func TestABindingExpiresAfterItsLastUse(t *testing.T) {
	now := time.Now()
	table := New(func() time.Time { return now })
	table.SetTTL("short", time.Minute)
	table.Put("p", "s", "p/0", always)
	table.Put("short", "s", "short/0", always)
	for range 3 {
		now = now.Add(time.Minute - time.Millisecond)
		_, found := table.Lookup("short", "s")
		require.True(t, found)
	}
	now = now.Add(time.Minute)
	require.Empty(t, table.Where("short", "s"))
	_, found := table.Lookup("p", "s")
	require.True(t, found)
	now = now.Add(DefaultTTL)
	_, found = table.Lookup("p", "s")
	require.False(t, found)
	require.Empty(t, table.Pools())
}

func TestUnbindWorkerRemovesAllItsBindings(t *testing.T) {
	table := New(nil)
	for i := range 30 {
		table.Put("p", fmt.Sprint(i), fmt.Sprint("p/", i%3), always)
	}
	table.UnbindWorker("p/1")
	require.Equal(t, map[string]int{"p/0": 10, "p/2": 10}, table.Counts("p"))
	require.Empty(t, table.Where("p", "1"))
	require.Equal(t, "p/2", table.Where("p", "2"))
}

func TestTheLeastRecentlyUsedBindingIsEvictedAtMaxBindings(t *testing.T) {
	now := time.Now()
	table := New(func() time.Time { return now })
	for i := range MaxBindings + 10 {
		table.Put("p", fmt.Sprint(i), "p/0", always)
	}
	require.Equal(t, map[string]int{"p": MaxBindings}, table.Pools())
	require.Empty(t, table.Where("p", "9"))
	require.Equal(t, "p/0", table.Where("p", "10"))
}

func TestConcurrentUse(t *testing.T) {
	table := New(nil)
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 500 {
				table.Put("p", fmt.Sprint(i), fmt.Sprint("p/", g), always)
				table.Lookup("p", fmt.Sprint(i))
				if i%50 == 0 {
					table.UnbindWorker(fmt.Sprint("p/", g))
				}
			}
		})
	}
	group.Wait()
}

func TestLookupReturnsTheLastBoundWorker(t *testing.T) {
	now := time.Now()
	table := New(func() time.Time { return now })
	require.Empty(t, table.Pools())
	table.Put("p", "s", "p/0", always)
	table.Put("p", "s", "p/1", always)
	table.Put("p", "a/b", "p/0", always)
	table.Put("q", "s", "q/0", always)
	for range 2 {
		worker, found := table.Lookup("p", "s")
		require.True(t, found)
		require.Equal(t, "p/1", worker)
	}
	_, found := table.Lookup("p", "none")
	require.False(t, found)
	require.Equal(t, map[string]int{"p": 2, "q": 1}, table.Pools())
	now = now.Add(DefaultTTL)
	require.Empty(t, table.Pools())
}
