package gateway

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

const mebibyte = 1 << 20

func (b *budget) state() (taken int64, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken, len(b.waiting)
}

func TestABodyWaitsForTheMemoryOfOthersInTurn(t *testing.T) {
	b := newBudget(10 * mebibyte)
	first, err := b.take(t.Context(), 8*mebibyte)
	require.NoError(t, err)
	type grant struct {
		giveBack func()
		err      error
	}
	claim := func(n int64, behind int) <-chan grant {
		got := background(func() grant { back, err := b.take(t.Context(), n); return grant{back, err} })
		require.Eventually(t, func() bool { _, waiting := b.state(); return waiting == behind+1 }, patience, tick)
		return got
	}
	large := claim(9*mebibyte, 0)
	small := claim(mebibyte, 1) // it would fit now, but the large one was first
	first()
	got := await(t, large)
	require.NoError(t, got.err)
	other := await(t, small)
	require.NoError(t, other.err)
	taken, _ := b.state()
	require.Equal(t, int64(10*mebibyte), taken)
	got.giveBack()
	other.giveBack()
	taken, _ = b.state()
	require.Zero(t, taken)
}

func TestABodyLargerThanTheBudgetGetsAllOfIt(t *testing.T) {
	b := newBudget(mebibyte)
	back, err := b.take(t.Context(), 64*mebibyte)
	require.NoError(t, err)
	taken, _ := b.state()
	require.Equal(t, int64(mebibyte), taken)
	back()
}

func TestSmallBodiesTakeNothingFromTheBudget(t *testing.T) {
	b := newBudget(mebibyte)
	_, err := b.take(t.Context(), mebibyte)
	require.NoError(t, err)
	_, err = b.take(t.Context(), bodyAllowance)
	require.NoError(t, err)
}

func TestWhoStopsWaitingForMemoryLeavesItToOthers(t *testing.T) {
	b := newBudget(2 * mebibyte)
	back, err := b.take(t.Context(), mebibyte)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	tooLarge := background(func() error { _, err := b.take(ctx, 2*mebibyte); return err })
	require.Eventually(t, func() bool { _, waiting := b.state(); return waiting == 1 }, patience, tick)
	behind := background(func() error { _, err := b.take(t.Context(), mebibyte); return err })
	require.Eventually(t, func() bool { _, waiting := b.state(); return waiting == 2 }, patience, tick)
	cancel()
	err = await(t, tooLarge)
	require.Equal(t, api.CodeUnavailable, api.CodeOf(err))
	require.NoError(t, await(t, behind), "there is room for it without the one in front")
	back()
}

func TestABudgetNeverGivesMoreThanItHas(t *testing.T) {
	b := newBudget(5 * mebibyte)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			for range 50 {
				ctx, cancel := context.WithCancel(context.Background())
				if rand.IntN(3) == 0 {
					cancel()
				}
				back, err := b.take(ctx, 1+rand.Int64N(6*mebibyte))
				if err == nil {
					if taken, _ := b.state(); taken > b.total {
						t.Errorf("%d of %d bytes are taken", taken, b.total)
					}
					back()
				}
				cancel()
			}
		})
	}
	group.Wait()
	taken, waiting := b.state()
	require.Zero(t, taken)
	require.Zero(t, waiting)
}
