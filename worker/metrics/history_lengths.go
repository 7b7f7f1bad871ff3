package metrics

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// lengthMaxAge is the age at which the length of a history is requested again.
	lengthMaxAge = time.Minute
	// lengthsPerScrape bounds how many lengths one scrape asks for, the oldest first; the others keep their last values.
	lengthsPerScrape = 64
)

// historyLengths knows how long the histories of workflows are. Asking costs the server one read of its cache, and
// leaves no trace.
type historyLengths struct {
	describe func(ctx context.Context, workflowID string) (int64, error)

	mu    sync.Mutex // held while lengths are asked for, so that concurrent readers share the answers
	known map[string]historyLength
}

type historyLength struct {
	events int64
	at     time.Time
}

func newHistoryLengths(describe func(ctx context.Context, workflowID string) (int64, error)) *historyLengths {
	return &historyLengths{describe: describe, known: map[string]historyLength{}}
}

// read returns the known lengths of these workflows' histories, by workflow ID. While reachable is false it asks for
// none.
func (h *historyLengths) read(workflowIDs []string, reachable bool) map[string]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted := make(map[string]historyLength, len(workflowIDs))
	var stale []string
	for _, id := range workflowIDs {
		l := h.known[id]
		wanted[id] = l
		if time.Since(l.at) >= lengthMaxAge {
			stale = append(stale, id)
		}
	}
	h.known = wanted // forgets the workflows that nobody asks for
	if reachable {
		slices.SortFunc(stale, func(a, b string) int { return wanted[a].at.Compare(wanted[b].at) })
		h.refreshLocked(stale[:min(len(stale), lengthsPerScrape)])
	}
	lengths := map[string]int64{}
	for id, l := range h.known {
		if l.events > 0 {
			lengths[id] = l.events
		}
	}
	return lengths
}

func (h *historyLengths) refreshLocked(workflowIDs []string) {
	askAll(slices.Values(workflowIDs), h.describe, func(id string, events int64, err error) {
		if err == nil {
			h.known[id] = historyLength{events, time.Now()}
		}
	})
}
