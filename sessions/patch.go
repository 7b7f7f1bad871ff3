package sessions

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/tempool/tempool/api"
)

// MergePatch applies a JSON merge patch (RFC 7396) to a JSON document; an empty target is no document. Numbers keep their digits.
// It fails with CodeInvalid if either is not JSON.
func MergePatch(target, patch json.RawMessage) (json.RawMessage, error) {
	var was any
	if len(target) > 0 {
		var err error
		if was, err = decode(target); err != nil {
			return nil, api.Errorf(api.CodeInvalid, "what is to be patched is not JSON: %w", err)
		}
	}
	change, err := decode(patch)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "the patch is not JSON: %w", err)
	}
	return encode(merge(was, change))
}

func merge(target, patch any) any {
	changes, isObject := patch.(map[string]any)
	if !isObject {
		return patch
	}
	result, isObject := target.(map[string]any)
	if !isObject {
		result = make(map[string]any, len(changes))
	}
	for key, value := range changes {
		if value == nil {
			delete(result, key)
		} else {
			result[key] = merge(result[key], value)
		}
	}
	return result
}

// decode reads exactly one JSON value.
func decode(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errTrailing
	}
	return v, nil
}

var errTrailing = errors.New("more follows the value")

// Patch applies a JSON merge patch (RFC 7396) to a session. A patch is an object with some of data, programs, metadata and ttl; null
// empties the first three and sets ttl to the store's default. What only the store may write, and what no session has, is
// refused with CodeInvalid, and then s is unchanged.
func (s *Session) Patch(patch json.RawMessage) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(patch, &members); err != nil || members == nil {
		return api.Errorf(api.CodeInvalid, `a patch of a session is a JSON object such as {"data": {"key": "value"}}`)
	}
	draft := s.Clone()
	for name, change := range members {
		var err error
		switch name {
		case "data":
			draft.Data, err = patched(name, draft.Data, change)
		case "programs":
			draft.Programs, err = patched(name, draft.Programs, change)
		case "metadata":
			draft.Metadata, err = patched(name, draft.Metadata, change)
		case "ttl":
			draft.TTL = 0
			if !isNull(change) {
				if err = json.Unmarshal(change, &draft.TTL); err != nil {
					err = api.Errorf(api.CodeInvalid, "ttl: %w", err)
				}
			}
		case "id", "version", "created_at", "last_accessed":
			err = api.Errorf(api.CodeInvalid, "%s is the store's to write: leave it out of the patch", name)
		default:
			err = api.Errorf(api.CodeInvalid, "a session has no %q: a patch may hold data, programs, metadata and ttl", name)
		}
		if err != nil {
			return err
		}
	}
	*s = *draft
	return nil
}

// patched is a map of a session after its member of the patch. It may reuse the map.
func patched(name string, current map[string]json.RawMessage, patch json.RawMessage) (map[string]json.RawMessage, error) {
	if isNull(patch) {
		return map[string]json.RawMessage{}, nil
	}
	var changes map[string]json.RawMessage
	if err := json.Unmarshal(patch, &changes); err != nil {
		return nil, api.Errorf(api.CodeInvalid, "%s is a JSON object, and so is its patch", name)
	}
	current = filled(current)
	for key, change := range changes {
		switch {
		case isNull(change):
			delete(current, key)
		case change[0] != '{': // nothing to merge
			current[key] = change
		default:
			merged, err := MergePatch(current[key], change)
			if err != nil {
				return nil, err
			}
			current[key] = merged
		}
	}
	return current, nil
}

func isNull(value json.RawMessage) bool { return string(value) == "null" }
