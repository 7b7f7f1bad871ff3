package cli

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

func (a *app) uiCommand() *cobra.Command {
	var printOnly bool
	c := &cobra.Command{
		Use:   "ui",
		Short: "Open the dashboard in a browser",
		Long: `Open the dashboard of an agent in a browser, or print its address where no browser can be opened. Every
agent shows the whole fleet; an agent of this machine is preferred.

The link signs the browser in, once and within a minute: as the operator if tempool may open the agent's Unix socket,
as its user and root may; else with the token in TEMPOOL_TOKEN or --token-file. Without either, the page shows what the
gateway shows to everybody, or asks for a token.`,
		Example: `  tempool ui
  tempool ui --print
  tempool ui --gateway unix:/var/lib/tempool/gateway.sock`,
	}
	c.Flags().BoolVar(&printOnly, "print", false, "print the address and open no browser")
	return a.gatewaysCommand(c, func(ctx context.Context, cp controlPlane, _ []string) error {
		link, err := a.dashboardLink(ctx, cp, a.options.Gateways)
		if err != nil {
			return err
		}
		if printOnly || a.format == formatJSON || a.browse(link.URL) != nil {
			return a.printMessage(link, "%s", link.URL)
		}
		who := "without signing in"
		if link.Name != "" {
			who = "as " + link.Name + " with the rights " + strings.Join(link.Rights, ", ")
		}
		return a.printMessage(link, "opened the dashboard in a browser, %s", who)
	})
}

// dashboardLink asks the gateways for a link, the best one first. One that refuses has a page of its own, which asks
// for a token.
func (a *app) dashboardLink(ctx context.Context, cp controlPlane, endpoints []string) (tempool.DashboardLink, error) {
	if len(endpoints) == 0 {
		var err error
		if endpoints, err = a.dashboardEndpoints(ctx, cp); err != nil {
			return tempool.DashboardLink{}, err
		}
	}
	failure := error(api.Errorf(api.CodeUnavailable,
		"no running agent serves a dashboard; start one, or name its gateway with --gateway"))
	page := ""
	for _, endpoint := range endpoints {
		link, err := ask(ctx, a, cp.DashboardLink, endpoint)
		if err == nil {
			return link, nil
		}
		failure = err
		if code := api.CodeOf(err); page == "" && strings.HasPrefix(endpoint, "http") &&
			(code == api.CodeForbidden || code == api.CodeUnauthorized) {
			page = strings.TrimRight(endpoint, "/") + "/ui/"
		}
	}
	if page != "" {
		return tempool.DashboardLink{URL: page, Rights: []string{}}, nil
	}
	return tempool.DashboardLink{}, failure
}

// dashboardEndpoints are the gateways of live agents: the sockets of this machine's first, which make their users
// operators.
func (a *app) dashboardEndpoints(ctx context.Context, cp controlPlane) ([]string, error) {
	hosts, err := send(ctx, a, cp.Hosts)
	if err != nil {
		return nil, err
	}
	own, _ := os.Hostname() // a machine without a name has no agent of the same one
	var sockets, near, far []string
	for _, host := range hosts {
		switch r := host.Heartbeat.Agent; {
		case host.HeardAt.IsZero() || r == nil || !strings.HasPrefix(r.Endpoint, "http"):
		case r.Hostname != own:
			far = append(far, r.Endpoint)
		default:
			if _, err := os.Stat(r.Socket); err == nil {
				sockets = append(sockets, "unix:"+r.Socket)
			}
			near = append(near, r.Endpoint)
		}
	}
	return append(append(sockets, near...), far...), nil
}
