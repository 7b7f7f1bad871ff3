package gateway

import (
	"context"
	"net/http"
	"strconv"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
)

// Bounds of GET /v1/sessions.
const (
	defaultListed = 100
	maxListed     = 1000
	// listedAtOnce bounds how many whole sessions are in memory for a list, which shows only what they are.
	listedAtOnce = 16
)

// listSessions is GET /v1/sessions. It extends no session's life.
func (g *Gateway) listSessions(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	query := r.URL.Query()
	limit := defaultListed
	var err error
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxListed {
			writeProblem(w, api.Errorf(api.CodeInvalid, "limit=%s is not a number from 1 to %d", text, maxListed))
			return
		}
	}
	calls, err := g.config.Sessions.Of(ctx, query.Get("pool"))
	var page tempool.SessionList
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
func summaries(ctx context.Context, store sessions.Store, after string, limit int) (tempool.SessionList, error) {
	page := tempool.SessionList{Sessions: []tempool.SessionSummary{}}
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
			page.Sessions = append(page.Sessions, tempool.SessionSummary{
				ID: s.ID, Version: s.Version, CreatedAt: s.CreatedAt, LastAccessed: s.LastAccessed, TTL: s.TTL, Bytes: len(body),
			})
			after = s.ID
		}
		if len(some) < wanted {
			return page, nil
		}
	}
}
