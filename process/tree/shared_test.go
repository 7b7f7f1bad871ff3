package tree

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const waitTimeout = 2 * time.Minute

// waiting is how many wait for the next read.
func (s *sharedReads) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		return 0
	}
	return len(s.next.visits)
}

func TestAReadServesAllWhoAskedBeforeItBegan(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	shared := sharedReads{read: func(visit func(*Entry)) (*Table, error) {
		begun <- struct{}{}
		<-end
		visit(proc(high, 1, high, 1))
		return newTable(time.Now(), nil), nil
	}}
	var callers sync.WaitGroup
	var early *Table
	callers.Go(func() { early, _ = shared.after(nil) })
	<-begun
	late, visits := make([]*Table, 10), make([]int, 10)
	for i := range late {
		callers.Go(func() { late[i], _ = shared.after(func(*Entry) { visits[i]++ }) })
	}
	require.Eventually(t, func() bool { return shared.waiting() == len(late) }, waitTimeout, time.Millisecond)
	end <- struct{}{}
	<-begun
	require.Zero(t, shared.waiting(), "a later caller gets a later read")
	end <- struct{}{}
	callers.Wait()
	for i := range late {
		require.NotNil(t, late[i])
		require.NotSame(t, early, late[i], "that read had begun before they asked")
		require.Same(t, late[0], late[i])
		require.Equal(t, 1, visits[i])
	}
}

func TestARecentTableIsSharedAndDoesNotWaitForAScan(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	shared := sharedReads{keeps: true, read: func(func(*Entry)) (*Table, error) {
		begun <- struct{}{}
		<-end
		return newTable(time.Now(), nil), nil
	}}
	since := func(age time.Duration) chan *Table {
		done := make(chan *Table, 1)
		go func() {
			table, _ := shared.since(time.Now().Add(-age), nil)
			done <- table
		}()
		return done
	}
	await := func(from chan *Table) (table *Table) {
		select {
		case table = <-from:
		case <-time.After(waitTimeout):
			t.Fatal("it waits for another scan")
		}
		return table
	}
	first := since(time.Hour)
	<-begun
	joined := since(time.Hour)
	require.Eventually(t, func() bool { return shared.waiting() == 1 }, waitTimeout, time.Millisecond)
	end <- struct{}{}
	kept := <-first
	require.NotNil(t, kept)
	require.Same(t, kept, await(joined))
	second := since(0)
	<-begun
	require.Same(t, kept, await(since(time.Hour)))
	end <- struct{}{}
	require.NotSame(t, kept, <-second)
}

// Stopping a large pool scanned all processes of the host for each of its processes.
func TestKillsAtTheSameTimeShareAScan(t *testing.T) {
	scanned := 0
	original := scans.read
	scans.read = func(visit func(*Entry)) (*Table, error) {
		scanned++
		return original(visit)
	}
	scans.reading.Lock() // as if a scan were under way
	var kills sync.WaitGroup
	reports := make([]KillReport, 20)
	for i := range reports {
		kills.Go(func() {
			reports[i] = Kill(Key{Root: Identity{PID: high + i, Start: 1},
				Cookie: NewCookie("host", "shared", int64(i), "state")})
		})
	}
	require.Eventually(t, func() bool { return scans.waiting() == len(reports) }, waitTimeout, time.Millisecond)
	scans.reading.Unlock()
	kills.Wait()
	scans.read = original
	require.Equal(t, 1, scanned)
	for _, r := range reports {
		require.True(t, r.Complete(), r.String())
	}
}
