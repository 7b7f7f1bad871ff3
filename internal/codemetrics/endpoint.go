package codemetrics

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool"
)

// maxAnswer bounds what is read of one answer, in bytes.
const maxAnswer = 64 << 20

// answerSlack is how much longer than the worker's time the caller waits, for the gateway to say that it was exceeded.
const answerSlack = 5 * time.Second

// gateways calls methods under leases through the leases' own endpoints, and keeps its connections. Safe for concurrent use.
type gateways struct {
	mu      sync.Mutex
	clients map[string]*http.Client // by Unix socket; "" is the one for TCP
}

func newGateways() *gateways { return &gateways{clients: map[string]*http.Client{}} }

// call posts in to a method under a lease and reads the answer into out. A failure that the gateway tells has its code and
// Started; one of the way there is CodeUnavailable, and Started unless no connection came about.
func (g *gateways) call(ctx context.Context, lease *tempool.Lease, method string, in, out any, timeout time.Duration) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode the parameters of %s: %w", method, err)
	}
	client, base := g.client(lease.Endpoint)
	ctx, cancel := context.WithTimeout(ctx, timeout+answerSlack)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/leases/"+url.PathEscape(lease.ID)+"/call/"+method, bytes.NewReader(body))
	if err != nil {
		return tempool.Errorf(tempool.CodeUnavailable, "lease %s has the endpoint %q, which is none: %w", lease.ID, lease.Endpoint, err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Tempool-Timeout", strconv.FormatInt(timeout.Milliseconds(), 10))
	response, err := client.Do(request)
	if err != nil {
		return broken(err, lease, !neverConnected(err))
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return broken(err, lease, true)
	}
	if response.StatusCode != http.StatusOK {
		return problem(response, answer)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		failure := tempool.Errorf(tempool.CodeWorkerError, "the answer of %s to %s cannot be read: %w", lease.Worker, method, err)
		failure.Started = true
		return failure
	}
	return nil
}

// client returns the client for an endpoint, http://HOST:PORT or unix:PATH, and the base of its URLs.
func (g *gateways) client(endpoint string) (*http.Client, string) {
	base := strings.TrimRight(endpoint, "/")
	socket, isSocket := strings.CutPrefix(endpoint, "unix:")
	if isSocket {
		base = "http://gateway"
	} else {
		socket = ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	client := g.clients[socket]
	if client == nil {
		transport := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}
		if isSocket {
			transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				var dialer net.Dialer
				return dialer.DialContext(ctx, "unix", socket)
			}
		}
		client = &http.Client{Transport: transport}
		g.clients[socket] = client
	}
	return client, base
}

func (g *gateways) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, client := range g.clients {
		client.CloseIdleConnections()
	}
}

func broken(err error, lease *tempool.Lease, started bool) error {
	failure := tempool.Errorf(tempool.CodeUnavailable, "the gateway of %s at %s: %w", lease.Worker, lease.Endpoint, err)
	failure.Started = started
	return failure
}

func neverConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// problem reads an error of the gateway (RFC 9457, with our code).
func problem(response *http.Response, body []byte) error {
	var told struct {
		Code        tempool.Code `json:"code"`
		Detail      string       `json:"detail"`
		Started     *bool        `json:"started"`
		WorkerError *struct {
			Message string `json:"message"`
		} `json:"worker_error"`
	}
	if json.Unmarshal(body, &told) != nil || told.Code == "" {
		failure := tempool.Errorf(tempool.CodeUnavailable, "the gateway answered %s without a reason", response.Status)
		failure.Started = true
		return failure
	}
	failure := &tempool.Error{Code: told.Code, Message: cmp.Or(told.Detail, response.Status), Started: told.Started == nil || *told.Started}
	if told.WorkerError != nil && !strings.Contains(failure.Message, told.WorkerError.Message) {
		failure.Message += ": " + told.WorkerError.Message
	}
	return failure
}
