package ui

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/gateway/access"
)

// shownSessions is how many sessions a page has.
const shownSessions = 100

type sessionsView struct {
	Pools []string
	Pool  string
	After string
	List  *tempool.SessionList
}

type sessionView struct {
	Pool    string
	Session *tempool.SessionState
	JSON    string
	Actions []actionLink
}

func (v *visit) sessionsPage() error {
	ctx, cancel := context.WithTimeout(v.remote(v.ctx()), v.requestTimeout())
	defer cancel()
	p := page{Title: "Sessions", Nav: "sessions"}
	query := v.r.URL.Query()
	view := sessionsView{Pool: query.Get("pool"), After: query.Get("after")}
	names := v.poolNames(ctx)
	view.Pools, p.Trouble = names.value, names.trouble("The pools could not be listed")
	if err := v.mayUse(view.Pool); err != nil {
		return err
	}
	if view.Pool != "" {
		list, err := v.pool(view.Pool).Sessions(ctx, view.After, shownSessions)
		if err != nil {
			p.Trouble = append(p.Trouble, unreadable("The sessions cannot be read", "The gateway with the store", err))
		} else {
			view.List = list
		}
	}
	p.Data = view
	return v.render(http.StatusOK, "sessions", p)
}

// sessionPage shows the content of a session, which extends its life as every read does.
func (v *visit) sessionPage() error {
	ctx, cancel := context.WithTimeout(v.remote(v.ctx()), v.requestTimeout())
	defer cancel()
	pool, id := v.r.PathValue("pool"), v.r.PathValue("session")
	state, err := v.pool(pool).Session(id).Get(ctx)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return err
	}
	view := sessionView{Pool: pool, Session: state, JSON: string(text)}
	if v.principal.Has(access.Admin) {
		view.Actions = actionsOn(aSession, pool, "?"+url.Values{"session": {id}}.Encode())
	}
	return v.render(http.StatusOK, "session", page{Title: id, Nav: "sessions", Data: view})
}
