package gateway

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/ui"
)

// registerDashboard serves the dashboard at /ui. It knows the tokens once the gateway has started.
func (g *Gateway) registerDashboard() {
	config := ui.Config{
		Fleet: g.config.Fleet, HostID: g.config.HostID, Namespace: g.config.Namespace, TemporalUI: g.config.TemporalUI,
		Logger:   g.config.Logger,
		Outage:   func() time.Duration { return g.Health().Outage },
		Endpoint: g.Endpoint,
	}
	if g.config.Socket != "" {
		config.OwnEndpoint = "unix:" + g.config.Socket
	}
	if g.config.Security.TokensFile != "" {
		config.Lookup = func(secret string) *access.Principal { return g.auth.tokens.Lookup(secret) }
	}
	g.dashboard = ui.New(config)
	for _, pattern := range []string{"/ui", "/ui/"} {
		g.mux.HandleFunc(pattern, g.serveDashboard)
	}
}

// isDashboard reports whether a path belongs to the dashboard.
func isDashboard(path string) bool { return path == "/ui" || strings.HasPrefix(path, "/ui/") }

// serveDashboard ends the streams of its pages when the gateway closes.
func (g *Gateway) serveDashboard(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(g.life, cancel)()
	g.dashboard.Serve(w, r.WithContext(ctx), principalOf(r))
}
