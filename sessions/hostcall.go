package sessions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// Host calls a worker makes about the session of the call it serves.
const (
	MethodGet           = "session.get"
	MethodUpdate        = "session.update"
	MethodTouch         = "session.touch"
	MethodDelete        = "session.delete"
	MethodPutProgram    = "programs.put"
	MethodGetProgram    = "programs.get"
	MethodDeleteProgram = "programs.delete"
)

// HostCalls answers host calls from a store.
//
// The session of a call begins with its first use: get, touch, update without a version, and programs.put make the session if there
// is none. An update with a version, programs.get and both deletes do not.
type HostCalls struct {
	Store Store
	// TTL and AnonymousTTL are the lives of sessions made here, named by a client and not.
	TTL          time.Duration
	AnonymousTTL time.Duration
}

// Serves reports whether a host call is about sessions.
func Serves(method string) bool {
	switch method {
	case MethodGet, MethodUpdate, MethodTouch, MethodDelete, MethodPutProgram, MethodGetProgram, MethodDeleteProgram:
		return true
	}
	return false
}

// Serve runs one host call for the session id and returns its result as JSON. Errors are coded: those of Store, CodeInvalid for
// arguments that do not fit, CodeVersionConflict for an update of another version, CodeProgramNotFound.
func (h HostCalls) Serve(ctx context.Context, id, method string, arguments []byte) ([]byte, error) {
	switch method {
	case MethodGet, MethodTouch:
		if err := noArguments(method, arguments); err != nil {
			return nil, err
		}
		return result(h.begin(ctx, id))
	case MethodUpdate:
		return h.update(ctx, id, arguments)
	case MethodDelete:
		if err := noArguments(method, arguments); err != nil {
			return nil, err
		}
		if err := h.Store.Delete(ctx, id); err != nil && !errors.Is(err, api.ErrSessionNotFound) {
			return nil, err
		}
		return nothing, nil
	case MethodPutProgram:
		return h.putProgram(ctx, id, arguments)
	case MethodGetProgram:
		return h.getProgram(ctx, id, arguments)
	case MethodDeleteProgram:
		return h.deleteProgram(ctx, id, arguments)
	}
	return nil, api.Errorf(api.CodeInvalid, "%q is no host call about sessions", method)
}

// nothing is the result of a host call that has none.
var nothing = []byte("null")

func result(s *Session, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return encode(s)
}

// begin returns the session, made now if there is none.
func (h HostCalls) begin(ctx context.Context, id string) (*Session, error) {
	for {
		s, err := h.Store.Get(ctx, id)
		if !errors.Is(err, api.ErrSessionNotFound) {
			return s, err
		}
		s, err = h.Store.Create(ctx, h.fresh(id))
		if !errors.Is(err, api.ErrSessionExists) {
			return s, err
		}
	}
}

// change updates the session, or makes it as change leaves an empty one.
func (h HostCalls) change(ctx context.Context, id string, change func(*Session) error) (*Session, error) {
	for {
		s, err := h.Store.Update(ctx, id, change)
		if !errors.Is(err, api.ErrSessionNotFound) {
			return s, err
		}
		s = h.fresh(id)
		if err := change(s); err != nil {
			return nil, err
		}
		s, err = h.Store.Create(ctx, s)
		if !errors.Is(err, api.ErrSessionExists) {
			return s, err
		}
	}
}

func (h HostCalls) fresh(id string) *Session {
	return &Session{ID: id, Programs: filled(nil), Data: filled(nil), Metadata: filled(nil), TTL: h.life(id)}
}

// life is the TTL of a session that has none of its own.
func (h HostCalls) life(id string) spec.Duration {
	if IsTemporary(id) {
		return spec.Duration(h.AnonymousTTL)
	}
	return spec.Duration(h.TTL)
}

// Patch applies a merge patch to a session in a store, as Session.Patch does; call it inside Update's change.
func (h HostCalls) Patch(s *Session, patch json.RawMessage) error {
	err := s.Patch(patch)
	if s.TTL == 0 {
		s.TTL = h.life(s.ID)
	}
	return err
}

func (h HostCalls) update(ctx context.Context, id string, arguments []byte) ([]byte, error) {
	var a struct {
		Patch   json.RawMessage `json:"patch"`
		Version *int64          `json:"version"`
	}
	if err := read(MethodUpdate, arguments, &a); err != nil {
		return nil, err
	}
	if a.Version == nil {
		return result(h.change(ctx, id, func(s *Session) error { return h.Patch(s, a.Patch) }))
	}
	return result(h.Store.Update(ctx, id, func(s *Session) error {
		if err := CheckVersion(s, *a.Version); err != nil {
			return err
		}
		return h.Patch(s, a.Patch)
	}))
}

// CheckVersion fails with CodeVersionConflict unless the session has the version; call it inside Update's change.
func CheckVersion(s *Session, version int64) error {
	if s.Version == version {
		return nil
	}
	return api.Errorf(api.CodeVersionConflict, "session %s has version %d, not %d: read it again and repeat the change", s.ID, s.Version, version)
}

type program struct {
	ID      string          `json:"id"`
	Program json.RawMessage `json:"program"`
}

func (h HostCalls) putProgram(ctx context.Context, id string, arguments []byte) ([]byte, error) {
	p, err := readProgram(MethodPutProgram, arguments)
	if err == nil && p.Program == nil {
		err = api.Errorf(api.CodeInvalid, `%s needs the member "program"`, MethodPutProgram)
	}
	if err != nil {
		return nil, err
	}
	if _, err := h.change(ctx, id, func(s *Session) error { s.Programs[p.ID] = p.Program; return nil }); err != nil {
		return nil, err
	}
	return nothing, nil
}

func (h HostCalls) getProgram(ctx context.Context, id string, arguments []byte) ([]byte, error) {
	p, err := readProgram(MethodGetProgram, arguments)
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

// errUnchanged ends an update that would change nothing.
var errUnchanged = errors.New("unchanged")

func (h HostCalls) deleteProgram(ctx context.Context, id string, arguments []byte) ([]byte, error) {
	p, err := readProgram(MethodDeleteProgram, arguments)
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
	return nothing, nil
}

func readProgram(method string, arguments []byte) (p program, err error) {
	if err := read(method, arguments, &p); err != nil {
		return p, err
	}
	if p.ID == "" {
		return p, api.Errorf(api.CodeInvalid, `%s needs the member "id"`, method)
	}
	return p, nil
}

// read decodes a host call's arguments, strictly: a misspelt member must not be lost.
func read(method string, arguments []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, trailing := d.Token(); trailing != io.EOF {
			err = errTrailing
		}
	}
	if err != nil {
		return api.Errorf(api.CodeInvalid, "the arguments of %s do not fit (docs/protocol.md): %w", method, err)
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
