package tempool

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/tempool/tempool/api"
)

// copyPath is where an agent takes requests about copies of sessions: on its Unix socket only, to which a gateway asked otherwise leads
// who may go there.
const copyPath = "/v1/admin/sessions/copy"

// SessionCopy tells how the copy stands that moves the sessions of the pool's store to another one. It fails with pool_not_found,
// unavailable, or forbidden where the agent's socket cannot be opened from here, as do CopySessions and StepSessionCopy.
func (p *Pool) SessionCopy(ctx context.Context) (*api.SessionCopy, error) {
	return p.aboutCopy(ctx, http.MethodGet, "", nil)
}

// CopySessions begins to copy the sessions of the pool's store to another one while they are in use: from now on every change goes to
// both. To begin the copy that goes on is no error. It fails with invalid where that cannot be done, and with store_unavailable.
func (p *Pool) CopySessions(ctx context.Context, request api.SessionCopyRequest) (*api.SessionCopy, error) {
	return p.aboutCopy(ctx, http.MethodPost, "?"+url.Values{"pool": {p.name}}.Encode(), request)
}

// StepSessionCopy takes the copy a step further, or back. It fails with invalid where the step is not the next one, and with
// store_unavailable.
func (p *Pool) StepSessionCopy(ctx context.Context, step api.SessionCopyStep) (*api.SessionCopy, error) {
	return p.aboutCopy(ctx, http.MethodPost, "/step", step)
}

func (p *Pool) aboutCopy(ctx context.Context, method, rest string, in any) (*api.SessionCopy, error) {
	if !api.ValidPoolName(p.name) {
		return nil, api.Errorf(api.CodePoolNotFound, "%q names no pool; a name is 1 to 63 of a-z, 0-9, '-' and '_'", p.name)
	}
	body, err := jsonPayload(in)
	if err != nil {
		return nil, err
	}
	put := func(endpoint string) (*reply, error) {
		bounded, stop := context.WithTimeout(ctx, sessionTimeout)
		header := http.Header{}
		if body.kind != "" {
			header.Set("Content-Type", body.kind)
		}
		response, err := p.client.transport.do(bounded, endpoint, method, copyPath+rest, header, body.body())
		if err != nil {
			stop()
			return nil, err
		}
		return &reply{Response: response, ctx: bounded, stop: stop}, nil
	}
	text, err := readAll(p.tryGateways(ctx, request{
		send: func(endpoint string) (*reply, error) {
			answer, err := put(endpoint)
			for _, socket := range gatewaysIn(err) {
				if path, is := strings.CutPrefix(socket, "unix:"); is && socket != endpoint && opens(path) {
					return put(socket)
				}
			}
			return answer, err
		},
		retryElsewhere: func(err error) bool { return api.CodeOf(err) == api.CodeUnavailable && !mayHaveStarted(err) },
		consumed:       body.consumed,
	}))
	if err != nil {
		return nil, err
	}
	var report api.SessionCopy
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "what answered about a copy of sessions was no gateway of Tempool: %w", err)
	}
	return &report, nil
}

// opens reports whether there is a socket that may be the one meant: a gateway on another machine names a path of that machine.
func opens(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == os.ModeSocket
}
