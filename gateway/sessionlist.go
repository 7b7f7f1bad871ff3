package gateway

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

// Bounds of GET /v1/sessions.
const (
	defaultListed = 100
	maxListed     = 1000
	// listedAtOnce bounds how many whole sessions are in memory for a list, which shows only what they are.
	listedAtOnce = 16
)

// sessionSummary is a session in a list.
type sessionSummary struct {
	ID           string        `json:"id"`
	Version      int64         `json:"version"`
	CreatedAt    time.Time     `json:"created_at"`
	LastAccessed time.Time     `json:"last_accessed"`
	TTL          spec.Duration `json:"ttl"`
	// Bytes are those of programs, data and metadata as JSON.
	Bytes int `json:"bytes"`
}

// sessionList is one page of the sessions of a store, in the order of their ids. Next is where the next page begins: its after. It is
// "" on the last page.
type sessionList struct {
	Sessions []sessionSummary `json:"sessions"`
	Next     string           `json:"next"`
}

// listSessions is GET /v1/sessions. It extends no session's life.
func (g *Gateway) listSessions(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	query := r.URL.Query()
	limit := defaultListed
	var err error
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxListed {
			writeProblem(w, tempool.Errorf(tempool.CodeInvalid, "limit=%s is not a number from 1 to %d", text, maxListed))
			return
		}
	}
	calls, err := g.config.Sessions.Of(ctx, query.Get("pool"))
	var page sessionList
	if err == nil {
		page, err = summaries(ctx, calls.Store, query.Get("after"), limit)
	}
	if err != nil {
		writeProblem(w, err)
		return
	}
	writeJSON(w, http.StatusOK, page)
}

// summaries reads up to limit sessions after an id, a few at a time.
func summaries(ctx context.Context, store sessions.Store, after string, limit int) (sessionList, error) {
	page := sessionList{Sessions: []sessionSummary{}}
	for {
		wanted := min(listedAtOnce, limit+1-len(page.Sessions)) // one more tells whether there is a next page
		some, err := store.List(ctx, after, wanted)
		if err != nil {
			return page, err
		}
		for _, s := range some {
			if len(page.Sessions) == limit {
				page.Next = after
				return page, nil
			}
			body, err := s.Body()
			if err != nil {
				return page, err
			}
			page.Sessions = append(page.Sessions, sessionSummary{s.ID, s.Version, s.CreatedAt, s.LastAccessed, s.TTL, len(body)})
			after = s.ID
		}
		if len(some) < wanted {
			return page, nil
		}
	}
}
