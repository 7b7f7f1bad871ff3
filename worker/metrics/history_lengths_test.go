package metrics

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHistoryLengthsAreAskedForInPortionsAndRemembered(t *testing.T) {
	var asked atomic.Int64
	h := newHistoryLengths(func(_ context.Context, id string) (int64, error) {
		asked.Add(1)
		return int64(len(id)), nil
	})
	var ids []string
	for i := range lengthsPerScrape + 10 {
		ids = append(ids, fmt.Sprintf("tempool/t/%d", i))
	}
	require.Empty(t, h.read(ids, false), "nothing is asked for while Temporal is away")
	require.Len(t, h.read(ids, true), lengthsPerScrape)
	lengths := h.read(ids, true)
	require.Len(t, lengths, len(ids))
	require.EqualValues(t, len("tempool/t/7"), lengths["tempool/t/7"])
	require.Len(t, h.read(ids, true), len(ids))
	require.EqualValues(t, len(ids), asked.Load(), "an answer counts for a minute")
	require.Len(t, h.read(ids[:3], true), 3, "workflows without a process here are forgotten")
	require.Len(t, h.known, 3)
}
