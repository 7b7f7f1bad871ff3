package tempool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/redact"
	"github.com/tempool/tempool/internal/transport"
)

// Bindings returns up to limit bindings (0: 100, at most 1000) of the pool's sessions to workers, of all hosts, for
// sessions after the one given, by session. A session that workers of two hosts have served has two. It fails if a host
// that may have some does not answer.
func (p *Pool) Bindings(ctx context.Context, after string, limit int) (*api.SessionBindings, error) {
	limit = cmp.Or(limit, 100)
	query := url.Values{"after": {after}, "limit": {strconv.Itoa(limit)}}
	all := api.SessionBindings{Bindings: []api.SessionBinding{}}
	more := false
	err := p.askEachGateway(ctx, transport.Request{Method: http.MethodGet, Path: "/v1/pools/" + p.name + "/bindings?" +
		query.Encode()},
		func(reply *transport.Reply) error {
			var page api.SessionBindings
			err := reply.ReadJSON(&page)
			all.Bindings, more = append(all.Bindings, page.Bindings...), more || page.Next != ""
			return err
		})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all.Bindings, func(a, b api.SessionBinding) int {
		return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Worker, b.Worker))
	})
	all.Bindings = slices.Compact(all.Bindings) // gateways of one host may have two addresses
	end := min(limit, len(all.Bindings))
	for end > 0 && end < len(all.Bindings) && all.Bindings[end].Session == all.Bindings[end-1].Session {
		end++
	}
	if more || end < len(all.Bindings) {
		all.Next = all.Bindings[end-1].Session
	}
	all.Bindings = all.Bindings[:end]
	return &all, nil
}

// Worker returns the worker that the session is bound to, POOL/N, or "" for none. With two, it is that of the host that
// is asked first.
func (s *Session) Worker(ctx context.Context) (worker string, err error) {
	path, err := s.bindingPath()
	if err != nil {
		return "", err
	}
	err = s.pool.askEachGateway(ctx, transport.Request{Method: http.MethodGet, Path: path},
		func(reply *transport.Reply) error {
			var b api.SessionBinding
			err := reply.ReadJSON(&b)
			worker = cmp.Or(worker, b.Worker)
			return err
		})
	return worker, err
}

// Bind has the worker in this slot serve the session's calls if it is free, and ends its bindings to workers of other
// hosts. The binding lasts for sessions.affinity_ttl after the session's last use, and at most until the worker's
// process ends. Unlike Migrate it runs no hook: what a process keeps of the session stays there. A worker without a
// process is worker_not_found. If the session is bound and a binding of another host could not be ended, the error is
// an *OtherBindingsError.
func (s *Session) Bind(ctx context.Context, slot int) error {
	path, err := s.bindingPath()
	if err != nil {
		return err
	}
	worker := api.WorkerName(s.pool.name, slot)
	request := transport.Request{Method: http.MethodPut, Path: path,
		Body: transport.JSONBody(api.BindRequest{Worker: worker})}
	if err := s.pool.sessionRequest(ctx, request, nil); err != nil {
		return err
	}
	if err := s.unbind(ctx, worker); err != nil {
		return &OtherBindingsError{Session: s.id, Worker: worker, Cause: err}
	}
	return nil
}

// OtherBindingsError says that a session was bound, but that its bindings of other hosts, if it has any, could not be
// ended. They end sessions.affinity_ttl after the session's last use there; Bind can be called again.
type OtherBindingsError struct {
	Session, Worker string
	Cause           error // of each host, with the address of its gateway
}

func (e *OtherBindingsError) Error() string {
	return fmt.Sprintf("session %s is bound to %s; its bindings of other hosts could not be ended, bind it again: %v",
		e.Session, e.Worker, e.Cause)
}

// Unwrap returns the cause.
func (e *OtherBindingsError) Unwrap() error { return e.Cause }

// Unbind ends the session's bindings. The next call goes to any worker, and binds the session to it.
func (s *Session) Unbind(ctx context.Context) error { return s.unbind(ctx, "") }

func (s *Session) unbind(ctx context.Context, keep string) error {
	path, err := s.bindingPath()
	if err != nil {
		return err
	}
	request := transport.Request{Method: http.MethodDelete, Path: path + "?" + url.Values{"keep": {keep}}.Encode()}
	return s.pool.askEachGateway(ctx, request, func(reply *transport.Reply) error { return reply.ReadJSON(nil) })
}

func (s *Session) bindingPath() (string, error) {
	if s.id == "" || s.id == "." || s.id == ".." {
		return "", errSessionID(s.id)
	}
	return "/v1/pools/" + s.pool.name + "/bindings/" + url.PathEscape(s.id), nil
}

// askEachGateway sends a request to the gateways of all hosts that have workers of the pool, and passes their answers
// to take, one after another. It asks all even if one fails.
func (p *Pool) askEachGateway(ctx context.Context, request transport.Request, take func(*transport.Reply) error) error {
	if err := p.validName(); err != nil {
		return err
	}
	endpoints := p.client.gateways
	if p.client.fixed == nil {
		status, err := p.Running(ctx)
		if err != nil {
			return err
		}
		endpoints = status.Endpoints()
	}
	request.Timeout = sessionTimeout
	var failures []error
	for _, endpoint := range endpoints {
		reply, err := p.client.transport.Do(ctx, endpoint, request)
		if err == nil {
			err = take(reply)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("gateway %s: %w", redact.URLs(endpoint), err))
		}
	}
	return errors.Join(failures...)
}
