package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
)

// readyzTimeout bounds how long ps waits for all gateways to say whether they reach Temporal; those that do not answer are left out.
const readyzTimeout = time.Second

// maxReadyzBytes bounds what is read of a gateway's answer, in bytes.
const maxReadyzBytes = 64 << 10

// readyzFunc asks the gateway at an endpoint (http://HOST:PORT, https://HOST:PORT or unix:PATH) for its /readyz: the field control_plane.
type readyzFunc func(ctx context.Context, endpoint string) (plane string, err error)

// addControlPlane has every worker's gateway asked, once each and all at once, whether it reaches Temporal, and notes the answers.
func (a *app) addControlPlane(ctx context.Context, views []api.PoolWorkers) {
	ctx, cancel := context.WithTimeout(ctx, min(readyzTimeout, a.timeout))
	defer cancel()
	var mu sync.Mutex
	answers := map[string]string{}
	var group sync.WaitGroup
	for _, endpoint := range gatewayEndpoints(views) {
		group.Go(func() {
			plane, err := a.readyz(ctx, endpoint)
			if err != nil {
				return // ctl may have no way to a gateway that serves its own clients well
			}
			mu.Lock()
			defer mu.Unlock()
			answers[endpoint] = plane
		})
	}
	group.Wait()
	for _, view := range views {
		for i := range view.Workers {
			view.Workers[i].ControlPlane = answers[view.Workers[i].Endpoint]
		}
	}
}

func gatewayEndpoints(views []api.PoolWorkers) []string {
	var all []string
	for _, view := range views {
		for _, worker := range view.Workers {
			if worker.Endpoint != "" && !slices.Contains(all, worker.Endpoint) {
				all = append(all, worker.Endpoint)
			}
		}
	}
	return all
}

// controlPlaneSummary sums up in a phrase what the gateways say, "" if none has said anything.
func controlPlaneSummary(views []api.PoolWorkers) string {
	var lost []string
	heard := false
	for _, view := range views {
		for _, worker := range view.Workers {
			heard = heard || worker.ControlPlane != ""
			if worker.ControlPlane != "" && worker.ControlPlane != controlPlaneOK && !slices.Contains(lost, worker.Host) {
				lost = append(lost, worker.Host)
			}
		}
	}
	switch {
	case !heard:
		return ""
	case len(lost) == 0:
		return "control plane ok"
	}
	return "control plane lost on " + strings.Join(lost, ", ") + " (calls go on under the leases held)"
}

const controlPlaneOK = "ok"

// fetchControlPlane asks over HTTP.
func fetchControlPlane(ctx context.Context, endpoint string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	base := strings.TrimRight(endpoint, "/")
	if socket, is := strings.CutPrefix(endpoint, "unix:"); is {
		base = "http://gateway"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", nil)
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", endpoint, err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", endpoint, err)
	}
	defer response.Body.Close()
	var told struct {
		ControlPlane string `json:"control_plane"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxReadyzBytes)).Decode(&told); err != nil {
		return "", fmt.Errorf("the answer of %s cannot be read (%s): %w", endpoint, response.Status, err)
	}
	if told.ControlPlane == "" {
		return "", fmt.Errorf("%s says nothing of its control plane (%s)", endpoint, response.Status)
	}
	return told.ControlPlane, nil
}
