package cli

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
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

// browserTime is how long the program that opens a browser may take to fail: some run for as long as the browser does.
const browserTime = 5 * time.Second

// openBrowser opens a page in the user's browser. A link that signs in is a secret, and other users may read the
// arguments of programs: such a link reaches the browser in a file.
func openBrowser(page string) error {
	program := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		program = "open"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return errors.New("no display is available")
	}
	u, err := url.Parse(page)
	// such programs open files and start applications, too
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("the gateway names %q as its dashboard, which is not an http or https URL", page)
	}
	if link := u.Query().Get("link"); link != "" {
		folder, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		if page, err = writeSignIn(filepath.Join(folder, "tempool", "signin"), u, link); err != nil {
			return err
		}
	}
	return openWith(program, page, browserTime)
}

// openWith starts a program with a page. A program that has not ended in time has not failed.
func openWith(program, page string, within time.Duration) error {
	command := exec.Command(program, page)
	if err := command.Start(); err != nil {
		return err
	}
	var failure error
	if ended := sleep.Done(func() { failure = command.Wait() }); sleep.For(ended, within) {
		return nil // it ends later, or with tempool
	}
	return failure
}

// signInPage sends a link to the dashboard that it is for, as a form: so the link is in no address either, which
// browsers keep.
var signInPage = template.Must(template.New("signin").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>Tempool</title>
<form method="post" action="{{.Action}}"><input type="hidden" name="link" value="{{.Link}}">
<button>Open the dashboard</button></form>
<script>document.forms[0].submit()</script></html>
`))

// staleSignIn is the age at which a file of writeSignIn is of no use: its link has expired, and the browser has read it
// or never will.
const staleSignIn = 5 * time.Minute

// writeSignIn writes a page that signs a browser in into a folder that only this user may read, and returns its
// address. It removes old ones.
func writeSignIn(folder string, dashboard *url.URL, link string) (address string, err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	old, _ := filepath.Glob(filepath.Join(folder, "*.html"))
	for _, path := range old {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > staleSignIn {
			_ = os.Remove(path)
		}
	}
	file, err := os.CreateTemp(folder, "*.html") // for this user only
	if err != nil {
		return "", err
	}
	defer file.Close()
	action := url.URL{Scheme: dashboard.Scheme, Host: dashboard.Host, Path: "/ui/signin/link"}
	if err := signInPage.Execute(file, map[string]string{"Action": action.String(), "Link": link}); err != nil {
		return "", err
	}
	return (&url.URL{Scheme: "file", Path: file.Name()}).String(), nil
}
