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

const (
	// readyzTimeout bounds the requests of ctl ps to all gateways together.
	readyzTimeout = time.Second
	// maxReadyzBytes bounds how much of a gateway's answer ctl reads.
	maxReadyzBytes = 64 << 10
	// controlPlaneOK is what a gateway reports if it reaches Temporal.
	controlPlaneOK = "ok"
)

// readyzFunc returns the field control_plane of the /readyz of the gateway at an endpoint (http://HOST:PORT, https://HOST:PORT or
// unix:PATH).
type readyzFunc func(ctx context.Context, endpoint string) (controlPlane string, err error)

// addControlPlane sets ControlPlane of every worker to what its gateway reports. It asks each gateway once, all of them
// concurrently, and leaves out those that do not answer: ctl may not reach a gateway that its clients do.
func (a *app) addControlPlane(ctx context.Context, views []api.PoolWorkers) {
	ctx, cancel := context.WithTimeout(ctx, min(readyzTimeout, a.timeout))
	defer cancel()
	var mu sync.Mutex
	answers := map[string]string{}
	var group sync.WaitGroup
	for _, endpoint := range gatewayEndpoints(views) {
		group.Go(func() {
			if answer, err := a.readyz(ctx, endpoint); err == nil {
				mu.Lock()
				defer mu.Unlock()
				answers[endpoint] = answer
			}
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
	for _, worker := range workersOf(views) {
		if worker.Endpoint != "" && !slices.Contains(all, worker.Endpoint) {
			all = append(all, worker.Endpoint)
		}
	}
	return all
}

// controlPlaneSummary sums up what the gateways report; it is empty if none answered.
func controlPlaneSummary(views []api.PoolWorkers) string {
	var lost []string
	answered := false
	for _, worker := range workersOf(views) {
		answered = answered || worker.ControlPlane != ""
		if worker.ControlPlane != "" && worker.ControlPlane != controlPlaneOK && !slices.Contains(lost, worker.Host) {
			lost = append(lost, worker.Host)
		}
	}
	switch {
	case !answered:
		return ""
	case len(lost) == 0:
		return "control plane ok"
	}
	return "control plane lost on " + strings.Join(lost, ", ") + " (calls continue under held leases)"
}

// fetchControlPlane implements readyzFunc over HTTP.
func fetchControlPlane(ctx context.Context, endpoint string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	base := strings.TrimRight(endpoint, "/")
	if socket, isSocket := strings.CutPrefix(endpoint, "unix:"); isSocket {
		base = "http://gateway"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", nil)
	if err != nil {
		return "", fmt.Errorf("get /readyz of %s: %w", endpoint, err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", fmt.Errorf("get /readyz of %s: %w", endpoint, err)
	}
	defer response.Body.Close()
	var answer struct {
		ControlPlane string `json:"control_plane"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxReadyzBytes)).Decode(&answer); err != nil {
		return "", fmt.Errorf("decode /readyz of %s (%s): %w", endpoint, response.Status, err)
	}
	if answer.ControlPlane == "" {
		return "", fmt.Errorf("/readyz of %s has no control_plane (%s)", endpoint, response.Status)
	}
	return answer.ControlPlane, nil
}
