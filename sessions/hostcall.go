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

// Serves reports whether HostCalls serves a method.
func Serves(method string) bool {
	switch method {
	case MethodGet, MethodUpdate, MethodTouch, MethodDelete, MethodPutProgram, MethodGetProgram, MethodDeleteProgram:
		return true
	}
	return false
}

// Serve runs one host call for the session id and returns its result as JSON. Errors have the codes of Store,
// CodeInvalid (malformed arguments), CodeVersionConflict, or CodeProgramNotFound.
func (h HostCalls) Serve(ctx context.Context, id, method string, arguments []byte) ([]byte, error) {
	switch method {
	case MethodGet, MethodTouch:
		if err := noArguments(method, arguments); err != nil {
			return nil, err
		}
		return encodeResult(h.getOrCreate(ctx, id))
	case MethodUpdate:
		return h.update(ctx, id, arguments)
	case MethodDelete:
		if err := noArguments(method, arguments); err != nil {
			return nil, err
		}
		if err := h.Store.Delete(ctx, id); err != nil && !errors.Is(err, api.ErrSessionNotFound) {
			return nil, err
		}
		return nullResult, nil
	case MethodPutProgram:
		return h.putProgram(ctx, id, arguments)
	case MethodGetProgram:
		return h.getProgram(ctx, id, arguments)
	case MethodDeleteProgram:
		return h.deleteProgram(ctx, id, arguments)
	}
	return nil, api.Errorf(api.CodeInvalid, "unknown session host call %q", method)
}

// nullResult is the result of a host call without one.
var nullResult = []byte("null")

func encodeResult(s *Session, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return encode(s)
}

// getOrCreate returns the session and creates it if it does not exist.
func (h HostCalls) getOrCreate(ctx context.Context, id string) (*Session, error) {
	for {
		s, err := h.Store.Get(ctx, id)
		if !errors.Is(err, api.ErrSessionNotFound) {
			return s, err
		}
		s, err = h.Store.Create(ctx, h.newSession(id))
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
		s, err = h.Store.Create(ctx, s)
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

func (h HostCalls) update(ctx context.Context, id string, arguments []byte) ([]byte, error) {
	var a struct {
		Patch   json.RawMessage `json:"patch"`
		Version *int64          `json:"version"`
	}
	if err := decodeArguments(MethodUpdate, arguments, &a); err != nil {
		return nil, err
	}
	if a.Version == nil {
		return encodeResult(h.updateOrCreate(ctx, id, func(s *Session) error { return h.Patch(s, a.Patch) }))
	}
	return encodeResult(h.Store.Update(ctx, id, func(s *Session) error {
		if err := CheckVersion(s, *a.Version); err != nil {
			return err
		}
		return h.Patch(s, a.Patch)
	}))
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

func (h HostCalls) putProgram(ctx context.Context, id string, arguments []byte) ([]byte, error) {
	p, err := decodeProgram(MethodPutProgram, arguments)
	if err == nil && p.Program == nil {
		err = api.Errorf(api.CodeInvalid, `%s: missing argument "program"`, MethodPutProgram)
	}
	if err != nil {
		return nil, err
	}
	if _, err := h.updateOrCreate(ctx, id,
		func(s *Session) error { s.Programs[p.ID] = p.Program; return nil }); err != nil {
		return nil, err
	}
	return nullResult, nil
}

func (h HostCalls) getProgram(ctx context.Context, id string, arguments []byte) ([]byte, error) {
	p, err := decodeProgram(MethodGetProgram, arguments)
	if err != nil {
		return nil, err
	}
	s, err := h.Store.Get(ctx, id)
	if err != nil && !errors.Is(err, api.ErrSessionNotFound) {
		return nil, err
	}
	if err == nil {
		if found, ok := s.Programs[p.ID]; ok {
			return found, nil
		}
	}
	return nil, api.Errorf(api.CodeProgramNotFound, "session %s has no program %q", id, p.ID)
}

// errUnchanged aborts an update that would change nothing.
var errUnchanged = errors.New("unchanged")

func (h HostCalls) deleteProgram(ctx context.Context, id string, arguments []byte) ([]byte, error) {
	p, err := decodeProgram(MethodDeleteProgram, arguments)
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
	if err != nil && !errors.Is(err, errUnchanged) && !errors.Is(err, api.ErrSessionNotFound) {
		return nil, err
	}
	return nullResult, nil
}

func decodeProgram(method string, arguments []byte) (p program, err error) {
	if err := decodeArguments(method, arguments, &p); err != nil {
		return p, err
	}
	if p.ID == "" {
		return p, api.Errorf(api.CodeInvalid, `%s: missing argument "id"`, method)
	}
	return p, nil
}

// decodeArguments decodes a host call's arguments and rejects unknown members, so that a misspelt one is not ignored.
func decodeArguments(method string, arguments []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.DisallowUnknownFields()
	if err := decodeOne(d, into); err != nil {
		return api.Errorf(api.CodeInvalid, "%s: invalid arguments (see docs/protocol.md): %w", method, err)
	}
	return nil
}

func noArguments(method string, arguments []byte) error {
	switch string(bytes.TrimSpace(arguments)) {
	case "", "null", "{}":
		return nil
	}
	return api.Errorf(api.CodeInvalid, "%s takes no arguments", method)
}
