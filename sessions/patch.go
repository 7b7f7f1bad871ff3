package sessions

import (
	"bytes"
	"encoding/json"

	"github.com/tempool/tempool/api"
)

// mergePatch applies a JSON merge patch (RFC 7396) to a JSON document; an empty target means no document. Numbers keep
// their digits. It fails with CodeInvalid if either is not JSON.
func mergePatch(target, patch json.RawMessage) (json.RawMessage, error) {
	var document any
	if len(target) > 0 {
		var err error
		if document, err = decodeNumber(target); err != nil {
			return nil, api.Errorf(api.CodeInvalid, "the value to patch is not valid JSON: %w", err)
		}
	}
	changes, err := decodeNumber(patch)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "the patch is not valid JSON: %w", err)
	}
	return encode(merge(document, changes))
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

// decodeNumber decodes one JSON value and preserves the digits of numbers.
func decodeNumber(data []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err = decodeOne(d, &v)
	return v, err
}

// Patch applies a JSON merge patch (RFC 7396) to a session. A patch is an object with some of data, programs, metadata
// and ttl; null empties the first three and resets ttl to the store's default. Patch rejects read-only and unknown
// fields with CodeInvalid and then leaves s unchanged.
func (s *Session) Patch(patch json.RawMessage) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(patch, &members); err != nil || members == nil {
		return api.Errorf(api.CodeInvalid, `a session patch must be a JSON object, for example {"data": {"key": "value"}}`)
	}
	draft := s.Clone()
	for name, change := range members {
		var err error
		switch name {
		case "data":
			draft.Data, err = patchMap(name, draft.Data, change)
		case "programs":
			draft.Programs, err = patchMap(name, draft.Programs, change)
		case "metadata":
			draft.Metadata, err = patchMap(name, draft.Metadata, change)
		case "ttl":
			draft.TTL = 0
			if !isNull(change) {
				if err = json.Unmarshal(change, &draft.TTL); err != nil {
					err = api.Errorf(api.CodeInvalid, "ttl: %w", err)
				}
			}
		case "id", "version", "created_at", "last_accessed":
			err = api.Errorf(api.CodeInvalid, "%s is read-only: remove it from the patch", name)
		default:
			err = api.Errorf(api.CodeInvalid, "unknown field %q: a session patch may contain data, programs, metadata and ttl",
				name)
		}
		if err != nil {
			return err
		}
	}
	*s = *draft
	return nil
}

// patchMap applies a patch to the session's map name. It may modify current.
func patchMap(name string, current map[string]json.RawMessage,
	patch json.RawMessage) (map[string]json.RawMessage, error) {
	if isNull(patch) {
		return map[string]json.RawMessage{}, nil
	}
	var changes map[string]json.RawMessage
	if err := json.Unmarshal(patch, &changes); err != nil {
		return nil, api.Errorf(api.CodeInvalid, "the patch of %s must be a JSON object or null", name)
	}
	current = orEmpty(current)
	for key, change := range changes {
		switch {
		case isNull(change):
			delete(current, key)
		case change[0] != '{': // a value that is not an object replaces the old one
			current[key] = change
		default:
			merged, err := mergePatch(current[key], change)
			if err != nil {
				return nil, err
			}
			current[key] = merged
		}
	}
	return current, nil
}

func isNull(value json.RawMessage) bool { return string(value) == "null" }
