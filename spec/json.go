package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// UnmarshalJSON parses a spec. A missing or null key gets its default. A value of the wrong form is a *Error that names
// its key. Unknown keys are ignored, so that an older Tempool can read the spec of a newer one; Parse, for files,
// rejects them. UnmarshalJSON does not validate: call Validate next.
func (s *Spec) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var tree map[string]any
	if err := decoder.Decode(&tree); err != nil {
		return fmt.Errorf("parse the spec: %w", err)
	}
	read := Default()
	for _, k := range keys {
		if tree[k.section] == nil {
			continue
		}
		section, ok := tree[k.section].(map[string]any)
		if !ok {
			return &Error{Key: k.section, Problem: kindOf(tree[k.section]), Allowed: "an object"}
		}
		if v := section[k.name]; v != nil {
			if e := k.set(&read, v); e != nil {
				return e
			}
		}
	}
	*s = read
	return nil
}
