package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// changeAttempts bounds the attempts of a change that conflicts with others.
const changeAttempts = 16

// SessionState is a session as the host stores it.
type SessionState struct {
	ID           string                     `json:"id"`
	Data         map[string]json.RawMessage `json:"data"`
	Programs     map[string]json.RawMessage `json:"programs"`
	Metadata     map[string]json.RawMessage `json:"metadata"`
	Version      int64                      `json:"version"`
	CreatedAt    time.Time                  `json:"created_at"`
	LastAccessed time.Time                  `json:"last_accessed"`
	TTL          string                     `json:"ttl"`
}

// Session is the session of a call, in the host's session store: its data by key, and more. The first use creates it.
// Nothing is cached: each access is a call to the host, which fails with a *HostError if it refuses.
type Session struct{ Entries }

// Metadata is the session's metadata, by key like its data.
func (s *Session) Metadata() Entries { return Entries{s.call, "metadata"} }

// Load returns the session.
func (s *Session) Load(ctx context.Context) (state SessionState, err error) {
	err = s.call.Host(ctx, "session.get", nil, &state)
	return state, err
}

// Patch applies a JSON merge patch (RFC 7396) to data, metadata, programs and ttl atomically, and returns the new
// session. A version above 0 makes it fail with ErrConflict if the session has another.
func (s *Session) Patch(ctx context.Context, patch any, version int64) (state SessionState, err error) {
	err = s.call.Host(ctx, "session.update", update{patch, version}, &state)
	return state, err
}

// Touch extends the session's life, and returns it.
func (s *Session) Touch(ctx context.Context) (state SessionState, err error) {
	err = s.call.Host(ctx, "session.touch", nil, &state)
	return state, err
}

// Delete deletes the session. The next use creates a new one with the same id.
func (s *Session) Delete(ctx context.Context) error {
	return s.call.Host(ctx, "session.delete", nil, nil)
}

type update struct {
	Patch   any   `json:"patch"`
	Version int64 `json:"version,omitempty"`
}

// Entries is a map in a session: data or metadata. Values are anything JSON can represent.
type Entries struct {
	call *Call
	part string
}

// All returns a copy.
func (e Entries) All(ctx context.Context) (map[string]json.RawMessage, error) {
	all, _, err := e.load(ctx)
	return all, err
}

// Get decodes the value of a key into value, and reports whether the key exists.
func (e Entries) Get(ctx context.Context, key string, value any) (bool, error) {
	all, err := e.All(ctx)
	if err != nil {
		return false, err
	}
	text, found := all[key]
	if !found {
		return false, nil
	}
	if err := json.Unmarshal(text, value); err != nil {
		return true, fmt.Errorf("decode %q of the session: %w", key, err)
	}
	return true, nil
}

// Set sets a key, atomically. A value that is null removes it.
func (e Entries) Set(ctx context.Context, key string, value any) error {
	plain, err := toPlain(value)
	if err != nil {
		return fmt.Errorf("set %q of the session: %w", key, err)
	}
	if _, isObject := plain.(map[string]any); isObject { // a patch would merge the two objects
		return e.change(ctx, key, func(json.RawMessage) (any, error) { return plain, nil })
	}
	return e.patch(ctx, map[string]any{key: plain}, 0)
}

// Delete removes a key, if it exists.
func (e Entries) Delete(ctx context.Context, key string) error {
	return e.patch(ctx, map[string]any{key: nil}, 0)
}

// Clear removes every key.
func (e Entries) Clear(ctx context.Context) error { return e.patch(ctx, nil, 0) }

// Update applies a JSON merge patch (RFC 7396), atomically: null removes a key, and objects are merged.
func (e Entries) Update(ctx context.Context, patch any) error { return e.patch(ctx, patch, 0) }

// Change sets a key to fn of its present value, which is T's zero value if it does not exist, and returns the result.
// If another call changed the session first, fn runs again; after 16 attempts Change fails with ErrConflict.
func Change[T any](ctx context.Context, e Entries, key string, fn func(old T) (T, error)) (result T, err error) {
	err = e.change(ctx, key, func(old json.RawMessage) (any, error) {
		var value T
		if len(old) > 0 {
			if err := json.Unmarshal(old, &value); err != nil {
				return nil, fmt.Errorf("decode %q of the session: %w", key, err)
			}
		}
		if result, err = fn(value); err != nil {
			return nil, err
		}
		return toPlain(result)
	})
	return result, err
}

func (e Entries) change(ctx context.Context, key string, fn func(old json.RawMessage) (any, error)) error {
	for attempt := 1; ; attempt++ {
		all, version, err := e.load(ctx)
		if err != nil {
			return err
		}
		old, err := toPlain(all[key])
		if err != nil {
			return err
		}
		next, err := fn(all[key])
		if err != nil {
			return err
		}
		if err := checkStorable(next); err != nil {
			return err
		}
		if _, exists := all[key]; next == nil && !exists || exists && isScalar(next) && next == old {
			return nil
		}
		err = e.patch(ctx, map[string]any{key: difference(old, next)}, version)
		if !errors.Is(err, ErrConflict) || attempt == changeAttempts {
			return err
		}
		// A random delay separates concurrent changes of one session.
		select {
		case <-time.After(time.Duration(rand.Float64() * float64(min(1<<(attempt-1), 100)) * float64(time.Millisecond))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (e Entries) load(ctx context.Context) (map[string]json.RawMessage, int64, error) {
	state, err := (&Session{e}).Load(ctx)
	if e.part == "metadata" {
		return state.Metadata, state.Version, err
	}
	return state.Data, state.Version, err
}

func (e Entries) patch(ctx context.Context, patch any, version int64) error {
	return e.call.Host(ctx, "session.update", update{map[string]any{e.part: patch}, version}, nil)
}

// Programs are the programs of a session: anything JSON can represent, for all workers of the pool.
type Programs struct{ call *Call }

// Put stores a program under an id, in place of an existing one.
func (p Programs) Put(ctx context.Context, id string, program any) error {
	return p.call.Host(ctx, "programs.put", map[string]any{"id": id, "program": program}, nil)
}

// Get decodes a program; it fails with ErrProgramNotFound if there is none with this id.
func (p Programs) Get(ctx context.Context, id string, program any) error {
	return p.call.Host(ctx, "programs.get", map[string]string{"id": id}, program)
}

// Delete deletes a program, if it exists.
func (p Programs) Delete(ctx context.Context, id string) error {
	return p.call.Host(ctx, "programs.delete", map[string]string{"id": id}, nil)
}

// toPlain is a value as JSON represents it; nil for an empty json.RawMessage.
func toPlain(value any) (plain any, err error) {
	if raw, ok := value.(json.RawMessage); ok && len(raw) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a large integer keeps its digits
	err = decoder.Decode(&plain)
	return plain, err
}

func isScalar(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// checkStorable refuses a null in an object: in a merge patch it removes the key.
func checkStorable(value any) error {
	object, ok := value.(map[string]any)
	if !ok {
		return nil
	}
	for key, member := range object {
		if member == nil {
			return fmt.Errorf("a session cannot store null in an object (key %q): omit the key, or put the null in a list", key)
		}
		if err := checkStorable(member); err != nil {
			return err
		}
	}
	return nil
}

// difference is the merge patch from old to next.
func difference(old, next any) any {
	before, isObject := old.(map[string]any)
	after, areObjects := next.(map[string]any)
	if !isObject || !areObjects {
		return next
	}
	patch := make(map[string]any)
	for key := range before {
		if _, kept := after[key]; !kept {
			patch[key] = nil
		}
	}
	for key, value := range after {
		if was, existed := before[key]; !existed || !isScalar(value) || !isScalar(was) || value != was {
			patch[key] = difference(was, value)
		}
	}
	return patch
}
