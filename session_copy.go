package tempool

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

const copyPath = "/v1/admin/sessions/copy"

// SessionCopy reports the copy of the pool's sessions to another store. It fails with pool_not_found, unavailable, or
// forbidden without the right admin for every pool, as CopySessions and StepSessionCopy do. The agent's socket has it.
func (p *Pool) SessionCopy(ctx context.Context) (*api.SessionCopy, error) {
	return p.copyRequest(ctx, http.MethodGet, "", nil)
}

// CopySessions starts to copy the sessions of the pool's store to another store while they are in use: from now on both
// stores receive every change. Repeating the request of the running copy is not an error. It fails with invalid and
// with store_unavailable.
func (p *Pool) CopySessions(ctx context.Context, request api.SessionCopyRequest) (*api.SessionCopy, error) {
	return p.copyRequest(ctx, http.MethodPost, "?"+url.Values{"pool": {p.name}}.Encode(), request)
}

// StepSessionCopy moves the copy a step forward or back. It fails with invalid if the step is not possible now, and
// with store_unavailable.
func (p *Pool) StepSessionCopy(ctx context.Context, step api.SessionCopyStep) (*api.SessionCopy, error) {
	return p.copyRequest(ctx, http.MethodPost, "/step", step)
}

func (p *Pool) copyRequest(ctx context.Context, method, suffix string, in any) (*api.SessionCopy, error) {
	report := &api.SessionCopy{}
	return report, p.operate(ctx, transport.Request{Method: method, Path: copyPath + suffix,
		Body: transport.JSONBody(in), Timeout: sessionTimeout}, report)
}

// operate sends a request for the operator, and reads the answer's JSON into out. A gateway that refuses it over TCP
// names its socket, which the operator of the same machine may use.
func (p *Pool) operate(ctx context.Context, request transport.Request, out any) error {
	reply, err := p.tryGateways(ctx, poolRequest{
		send: func(endpoint string) (*transport.Reply, error) {
			reply, err := p.client.transport.Do(ctx, endpoint, request)
			for _, socket := range transport.OtherGateways(err) {
				if path, ok := strings.CutPrefix(socket, "unix:"); ok && socket != endpoint && isSocket(path) {
					return p.client.transport.Do(ctx, socket, request)
				}
			}
			return reply, err
		},
		retryElsewhere: retryRound,
		body:           request.Body,
	})
	if err != nil {
		return err
	}
	return reply.ReadJSON(out)
}

// isSocket reports whether a socket exists at path here: a gateway on another machine names a path of that machine.
func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == os.ModeSocket
}
