package sleep

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestForWaitsUnlessTheEndComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, ended := time.Now(), make(chan struct{})
		require.True(t, For(ended, time.Minute))
		require.Equal(t, time.Minute, time.Since(began))
		time.AfterFunc(time.Second, func() { close(ended) })
		require.False(t, Ended(ended))
		require.False(t, For(ended, time.Hour))
		require.True(t, Ended(ended))
		require.Equal(t, time.Minute+time.Second, time.Since(began))
	})
}

func TestTicksComeUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, ended := time.Now(), make(chan struct{})
		var ticks []time.Duration
		for now := range Ticks(ended, time.Minute) {
			ticks = append(ticks, now.Sub(began))
			if len(ticks) == 3 {
				close(ended)
			}
		}
		require.Equal(t, []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute}, ticks)
		for range Ticks(make(chan struct{}), time.Minute) {
			break
		}
	})
}

func TestEachCallsAtMostSoManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, called := time.Now(), make([]bool, 5)
		Each(len(called), 2, func(i int) {
			For(nil, time.Minute)
			called[i] = true
		})
		require.NotContains(t, called, false)
		require.Equal(t, 3*time.Minute, time.Since(began))
	})
}

func TestAChangeWakesThoseWhoWaitForTheNextOne(t *testing.T) {
	var changes Changes
	changes.Announce() // nobody waits
	first := changes.Next()
	require.Equal(t, first, changes.Next(), "all wait for the same change")
	require.False(t, Ended(first))
	changes.Announce()
	require.True(t, Ended(first))
	require.False(t, Ended(changes.Next()))
}
