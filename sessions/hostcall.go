package sessions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Host calls with which a worker uses the session of the call it serves.
const (
	MethodGet           = "session.get"
	MethodUpdate        = "session.update"
	MethodTouch         = "session.touch"
	MethodDelete        = "session.delete"
	MethodPutProgram    = "programs.put"
	MethodGetProgram    = "programs.get"
	MethodDeleteProgram = "programs.delete"
)

// HostCalls serves host calls from a store.
//
// get, touch, update without a version, and programs.put create the session if it does not exist. An update with a
// version, programs.get and both deletes do not.
type HostCalls struct {
	Store Store
	// TTL applies to sessions that HostCalls creates under a client's id, AnonymousTTL to those under a temporary id.
	TTL          time.Duration
	AnonymousTTL time.Duration
}

// served are the host calls by their methods.
var served = map[string]func(h HostCalls, ctx context.Context, id string, a arguments) (any, error){
	MethodGet: HostCalls.get, MethodTouch: HostCalls.get, MethodUpdate: HostCalls.update, MethodDelete: HostCalls.delete,
	MethodPutProgram: HostCalls.putProgram, MethodGetProgram: HostCalls.getProgram,
	MethodDeleteProgram: HostCalls.deleteProgram,
}

// Serves reports whether HostCalls serves a method.
func Serves(method string) bool { return served[method] != nil }

// Serve runs one host call for the session id and returns its result as JSON. Errors have the codes of Store,
// CodeInvalid (malformed arguments), CodeVersionConflict, or CodeProgramNotFound.
func (h HostCalls) Serve(ctx context.Context, id, method string, given []byte) ([]byte, error) {
	if !Serves(method) {
		return nil, api.Errorf(api.CodeInvalid, "unknown session host call %q", method)
	}
	if err := CheckClientID(id); err != nil {
		return nil, err
	}
	result, err := served[method](h, ctx, id, arguments{method, given})
	if err != nil {
		return nil, err
	}
	return encode(result)
}

func (h HostCalls) get(ctx context.Context, id string, a arguments) (any, error) {
	if err := a.none(); err != nil {
		return nil, err
	}
	return h.getOrCreate(ctx, id)
}

func (h HostCalls) delete(ctx context.Context, id string, a arguments) (any, error) {
	err := a.none()
	if err == nil {
		err = h.Store.Delete(ctx, id)
	}
	return nil, unlessNotFound(err)
}

// unlessNotFound is err, but nil for a session that does not exist.
func unlessNotFound(err error) error {
	if errors.Is(err, api.ErrSessionNotFound) {
		return nil
	}
	return err
}

// getOrCreate returns the session and creates it if it does not exist.
func (h HostCalls) getOrCreate(ctx context.Context, id string) (*Session, error) {
	for {
		s, err := h.Store.Get(ctx, id)
		if !errors.Is(err, api.ErrSessionNotFound) {
			return s, err
		}
		s, err = Create(ctx, h.Store, h.newSession(id))
		if !errors.Is(err, api.ErrSessionExists) {
			return s, err
		}
	}
}

// updateOrCreate updates the session; if it does not exist, it creates one and applies change to it.
func (h HostCalls) updateOrCreate(ctx context.Context, id string, change func(*Session) error) (*Session, error) {
	for {
		s, err := h.Store.Update(ctx, id, change)
		if !errors.Is(err, api.ErrSessionNotFound) {
			return s, err
		}
		s = h.newSession(id)
		if err := change(s); err != nil {
			return nil, err
		}
		s, err = Create(ctx, h.Store, s)
		if !errors.Is(err, api.ErrSessionExists) {
			return s, err
		}
	}
}

func (h HostCalls) newSession(id string) *Session {
	return &Session{ID: id, Programs: orEmpty(nil), Data: orEmpty(nil), Metadata: orEmpty(nil), TTL: h.DefaultTTL(id)}
}

// DefaultTTL is the TTL of a session without one of its own.
func (h HostCalls) DefaultTTL(id string) spec.Duration {
	if IsTemporary(id) {
		return spec.Duration(h.AnonymousTTL)
	}
	return spec.Duration(h.TTL)
}

// Patch is Session.Patch with the default TTL of h. Call it inside the change of Update.
func (h HostCalls) Patch(s *Session, patch json.RawMessage) error {
	err := s.Patch(patch)
	if s.TTL == 0 {
		s.TTL = h.DefaultTTL(s.ID)
	}
	return err
}

func (h HostCalls) update(ctx context.Context, id string, a arguments) (any, error) {
	var given struct {
		Patch   json.RawMessage `json:"patch"`
		Version *int64          `json:"version"`
	}
	if err := a.decode(&given); err != nil {
		return nil, err
	}
	if given.Version == nil {
		return h.updateOrCreate(ctx, id, func(s *Session) error { return h.Patch(s, given.Patch) })
	}
	return h.Store.Update(ctx, id, func(s *Session) error {
		if err := CheckVersion(s, *given.Version); err != nil {
			return err
		}
		return h.Patch(s, given.Patch)
	})
}

// CheckVersion fails with CodeVersionConflict unless the session has the version. Call it inside the change of Update.
func CheckVersion(s *Session, version int64) error {
	if s.Version == version {
		return nil
	}
	return api.Errorf(api.CodeVersionConflict, "session %s has version %d, not %d: read it again and retry the update",
		s.ID, s.Version, version)
}

type program struct {
	ID      string          `json:"id"`
	Program json.RawMessage `json:"program"`
}

func (h HostCalls) putProgram(ctx context.Context, id string, a arguments) (any, error) {
	p, err := a.program()
	if err == nil && p.Program == nil {
		err = api.Errorf(api.CodeInvalid, `%s: missing argument "program"`, a.method)
	}
	if err == nil {
		_, err = h.updateOrCreate(ctx, id, func(s *Session) error { s.Programs[p.ID] = p.Program; return nil })
	}
	return nil, err
}

func (h HostCalls) getProgram(ctx context.Context, id string, a arguments) (any, error) {
	p, err := a.program()
	if err != nil {
		return nil, err
	}
	s, err := h.Store.Get(ctx, id)
	if err := unlessNotFound(err); err != nil {
		return nil, err
	}
	if s != nil {
		if found, ok := s.Programs[p.ID]; ok {
			return found, nil
		}
	}
	return nil, api.Errorf(api.CodeProgramNotFound, "session %s has no program %q", id, p.ID)
}

// errUnchanged aborts an update that would change nothing.
var errUnchanged = errors.New("unchanged")

func (h HostCalls) deleteProgram(ctx context.Context, id string, a arguments) (any, error) {
	p, err := a.program()
	if err != nil {
		return nil, err
	}
	_, err = h.Store.Update(ctx, id, func(s *Session) error {
		if _, found := s.Programs[p.ID]; !found {
			return errUnchanged
		}
		delete(s.Programs, p.ID)
		return nil
	})
	if errors.Is(err, errUnchanged) {
		err = nil
	}
	return nil, unlessNotFound(err)
}

// arguments are those of a host call.
type arguments struct {
	method string
	text   []byte
}

func (a arguments) program() (p program, err error) {
	if err = a.decode(&p); err == nil && p.ID == "" {
		err = api.Errorf(api.CodeInvalid, `%s: missing argument "id"`, a.method)
	}
	return p, err
}

// decode rejects unknown members, so that a misspelt one is not ignored.
func (a arguments) decode(into any) error {
	d := json.NewDecoder(bytes.NewReader(a.text))
	d.DisallowUnknownFields()
	if err := decodeOne(d, into); err != nil {
		return api.Errorf(api.CodeInvalid, "%s: invalid arguments (see docs/protocol.md): %w", a.method, err)
	}
	return nil
}

func (a arguments) none() error {
	switch string(bytes.TrimSpace(a.text)) {
	case "", "null", "{}":
		return nil
	}
	return api.Errorf(api.CodeInvalid, "%s takes no arguments", a.method)
}
