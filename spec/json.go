package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
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
	for _, k := range keys {
		if tree[k.section] == nil {
			continue
		}
		section, ok := tree[k.section].(map[string]any)
		if !ok {
			return &Error{Key: k.section, Problem: kindOf(tree[k.section]), Allowed: "an object"}
		}
		if v := section[k.name]; v != nil {
			if e := formError(k, v); e != nil {
				return e
			}
		}
	}
	read, err := overDefaults(data)
	if err != nil {
		return fmt.Errorf("parse the spec: %w", err)
	}
	*s = read
	return nil
}

// overDefaults parses JSON whose forms have been checked. In the result no list or table is nil, and every warm-up has
// params.
func overDefaults(data []byte) (Spec, error) {
	type bare Spec // has no UnmarshalJSON
	read := bare(Default())
	if err := json.Unmarshal(data, &read); err != nil {
		return Spec{}, err
	}
	s := Spec(read)
	defaults := Default()
	for _, k := range keys {
		if v := k.value(&s); (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.IsNil() && k.form != autoNumbers {
			v.Set(k.value(&defaults))
		}
	}
	for i, w := range s.Start.Warmup {
		if len(w.Params) == 0 || bytes.Equal(w.Params, []byte("null")) {
			s.Start.Warmup[i].Params = json.RawMessage("{}")
		}
	}
	return s, nil
}
