package tempool

import (
	"context"
	"net/http"
	"time"

	"github.com/tempool/tempool/internal/transport"
)

// DashboardLink signs a browser in at the dashboard of a gateway, as the client that asked for it. It works once, within a minute.
type DashboardLink struct {
	URL string `json:"url"`
	// Name is who is signed in by it, and Rights what they may do.
	Name   string   `json:"name"`
	Rights []string `json:"rights"`
}

// dashboardTimeout bounds the request for a link.
const dashboardTimeout = 10 * time.Second

// DashboardLink asks a gateway for a link to its dashboard. It fails with forbidden if this client does not have the right read there, and with
// unavailable if the gateway has no TCP listener that a browser could reach.
func (c *Client) DashboardLink(ctx context.Context, endpoint string) (link DashboardLink, err error) {
	err = c.askGateway(ctx, endpoint, transport.Request{Method: http.MethodPost, Path: "/ui/links", Timeout: dashboardTimeout}, &link)
	return link, err
}
