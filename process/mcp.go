package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

const (
	mcpInitialize = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"tempool","version":"1"}}`
	mcpDiscover   = "server/discover"
	mcpMeta       = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"tempool","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
	// mcpUnsupported is the error with which a server of the modern revisions refuses the one that it is asked with.
	mcpUnsupported = "-32022"
	// eraTimeout is how long a server may take to answer which revisions it speaks; then it speaks the legacy ones if it
	// answers a later question, and eraGrace longer not this one. One that is still starting answers neither.
	eraTimeout, eraGrace = 5 * time.Second, time.Second
	// maxEras is how many pools are remembered that have been asked.
	maxEras = 1000
)

// greetMCP is the first message to an MCP server: our handshake, or a ping if the handshake is the client's.
func (p *Process) greetMCP(ctx context.Context) error {
	if !p.spec.MCP.On() {
		return nil
	}
	method, params := "initialize", mcpInitialize
	switch {
	case p.Era() == spec.EraModern:
		method, params = mcpDiscover, `{"_meta":`+mcpMeta+`}`
	case p.spec.MCP.Mode == spec.MCPSession:
		method, params = "ping", ""
	}
	answer, err := p.conn.Call(ctx, wire.Request{Method: method, Payload: []byte(params)})
	if err == nil && method == "initialize" {
		err = p.conn.Notify(ctx, wire.Request{Method: "notifications/initialized"})
	}
	if err != nil {
		return fmt.Errorf("%s of the MCP server: %w", method, err)
	}
	if method != "ping" {
		p.mu.Lock()
		p.greeting = answer.Payload
		p.mu.Unlock()
	}
	return nil
}

// eraAnswer is which revisions the server of a spec speaks.
type eraAnswer struct {
	spec  *spec.Spec
	ready chan struct{} // closed when era or err is set
	era   string
	err   error
}

// era is the Era of a process that is about to start. With mcp.era = "auto" a process is started once for each spec of
// a pool, is asked, and ends: many servers exit at what they do not know, and some keep to the era of their first
// message.
func (s *Supervisor) era(ctx context.Context, launch Launch) (string, error) {
	if !launch.Spec.MCP.On() {
		return "", nil
	}
	if era := launch.Spec.MCPEra(); era != spec.EraAuto {
		return era, nil
	}
	pool := launch.Spec.Pool.Name
	s.mu.Lock()
	a := s.eras[pool]
	if a == nil || !reflect.DeepEqual(*a.spec, launch.Spec) {
		a = &eraAnswer{spec: &launch.Spec, ready: make(chan struct{})}
		if len(s.eras) >= maxEras {
			clear(s.eras)
		}
		s.eras[pool] = a
		s.eraCount++
		number := s.eraCount
		s.processes.Go(func() {
			defer close(a.ready)
			if a.era, a.err = s.askEra(launch.Spec, number); a.err != nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.eras[pool] == a {
					delete(s.eras, pool)
				}
			}
		})
	}
	s.mu.Unlock()
	select {
	case <-a.ready:
		return a.era, a.err
	case <-ctx.Done():
		return "", fmt.Errorf("the MCP server has not answered which revisions it speaks: %w", context.Cause(ctx))
	}
}

// forgetEra has a pool asked again after a start that has failed: what failed may have been the answer, too.
func (s *Supervisor) forgetEra(pool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.eras[pool]; a != nil && sleep.Ended(a.ready) {
		delete(s.eras, pool)
	}
}

// askEra starts a process that serves nobody, and returns what it answers to server/discover.
func (s *Supervisor) askEra(sp spec.Spec, number int64) (era string, err error) {
	sp.Pool.MaxInflight = 2 // questions
	p, err := s.newKind(Launch{Worker: sp.Pool.Name + "/probe", Incarnation: number, Spec: sp, era: spec.EraModern})
	if err == nil {
		err = p.kind.start(s.ctx)
	}
	if err != nil {
		return "", fmt.Errorf("start the MCP server to ask which revisions it speaks: %w", markExhausted(err))
	}
	s.supervise(p, s.templateProcesses)
	ctx, cancel := context.WithTimeout(s.ctx, sp.Start.Timeout.D())
	defer cancel()
	var answer wire.Response
	if err = p.connErr; err == nil {
		defer time.AfterFunc(eraTimeout, func() {
			params := `{"_meta":` + mcpMeta + "," + mcpInitialize[1:]
			if _, err := p.conn.Call(ctx, wire.Request{Method: "initialize", Payload: []byte(params)}); err == nil {
				sleep.For(ctx.Done(), eraGrace)
				cancel()
			}
		}).Stop()
		answer, err = p.conn.Call(ctx, wire.Request{Method: mcpDiscover, Payload: []byte(`{"_meta":` + mcpMeta + `}`)})
	}
	p.Kill("it has answered which revisions of MCP it speaks")
	<-p.done
	var found struct{ SupportedVersions []string }
	era = spec.EraLegacy
	if remote, ok := errors.AsType[*wire.RemoteError](err); ok && remote.Code == mcpUnsupported ||
		err == nil && json.Unmarshal(answer.Payload, &found) == nil && len(found.SupportedVersions) > 0 {
		era = spec.EraModern
	}
	s.logger.Info("an MCP server was asked which revisions it speaks", "pool", sp.Pool.Name, "era", era,
		"answer", strconv.Quote(truncate(fmt.Sprint(string(answer.Payload), err), maxLineBytes)))
	return era, s.ctx.Err()
}
