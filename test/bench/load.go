package main

import (
	"context"
	"sync"
	"time"
)

// perSecond runs a number of callers for a span and returns their calls per second. Each caller, numbered from 0, calls
// again as soon as its last call returns.
func perSecond(ctx context.Context, callers int, span time.Duration,
	call func(ctx context.Context, caller int) error) (float64, error) {
	counts := make([]int, callers)
	failures := make([]error, callers)
	var group sync.WaitGroup
	began := time.Now()
	for i := range callers {
		group.Go(func() {
			for time.Since(began) < span && failures[i] == nil {
				failures[i] = call(ctx, i)
				counts[i]++
			}
		})
	}
	group.Wait()
	took := time.Since(began).Seconds()
	all := 0
	for i := range callers {
		if failures[i] != nil {
			return 0, failures[i]
		}
		all += counts[i]
	}
	return float64(all) / took, nil
}
