package gateway

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
)

// Bounds of GET /v1/sessions.
const (
	defaultListLimit = 100
	maxListLimit     = 1000
	// listBatch bounds the whole sessions in memory for a list, which shows summaries only.
	listBatch = 16
)

// listSessions is GET /v1/sessions. It does not extend the sessions' TTL.
func (g *Gateway) listSessions(ctx context.Context, r *http.Request) (page tempool.SessionList, err error) {
	query := r.URL.Query()
	limit, err := listLimit(query, maxListLimit)
	if err != nil {
		return page, err
	}
	calls, err := g.config.Sessions.Of(ctx, query.Get("pool"))
	if err != nil {
		return page, err
	}
	return summaries(ctx, calls.Store, query.Get("after"), limit)
}

// listLimit is how many entries a client asks for, from 1 to most.
func listLimit(query url.Values, most int) (limit int, err error) {
	text := query.Get("limit")
	if text == "" {
		return defaultListLimit, nil
	}
	if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > most {
		return 0, api.Errorf(api.CodeInvalid, "limit=%s is not a number from 1 to %d", text, most)
	}
	return limit, nil
}

// summaries reads up to limit sessions after an id, a batch at a time.
func summaries(ctx context.Context, store sessions.Store, after string, limit int) (tempool.SessionList, error) {
	page := tempool.SessionList{Sessions: []tempool.SessionSummary{}}
	for {
		wanted := min(listBatch, limit+1-len(page.Sessions)) // one more shows whether there is a next page
		batch, err := store.List(ctx, after, wanted)
		if err != nil {
			return page, err
		}
		for _, s := range batch {
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
		if len(batch) < wanted {
			return page, nil
		}
	}
}
