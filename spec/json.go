package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// UnmarshalJSON reads a spec, with the default for every key that is left out or null. A value of the wrong form is a *Error that
// names its key. Keys it does not know are passed over, so that a spec written by a newer Tempool can still be read; files, which
// people write, are strict (Parse). Call Validate next.
func (s *Spec) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var tree map[string]any
	if err := decoder.Decode(&tree); err != nil {
		return fmt.Errorf("read a spec: %w", err)
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
		return fmt.Errorf("read a spec: %w", err)
	}
	*s = read
	return nil
}

// overDefaults reads JSON whose forms are known to be right. No list or table is nil afterwards, and no warm-up without params.
func overDefaults(data []byte) (Spec, error) {
	type bare Spec // without UnmarshalJSON
	read := bare(Default())
	if err := json.Unmarshal(data, &read); err != nil {
		return Spec{}, err
	}
	s := Spec(read)
	defaults := Default()
	for _, k := range keys {
		if v := k.value(&s); (k.form == texts || k.form == integers || k.form == numbers || k.form == variables || k.form == warmups) && v.IsNil() {
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
