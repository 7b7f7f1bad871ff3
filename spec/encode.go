package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/pelletier/go-toml/v2"
)

// Encode returns s as a pool.toml with every key, which Parse turns into s again. It fails with the error of Validate for an invalid
// spec, and for warm-up params that TOML cannot represent: a null, or a number out of range.
func Encode(s Spec) ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, section := range sections {
		if out.Len() > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "[%s]\n", section)
		for _, k := range keys {
			if k.section != section || k.form == warmups {
				continue
			}
			if err := writeKey(&out, k.name, k.value(&s).Interface()); err != nil {
				return nil, fmt.Errorf("write %s: %w", k.key(), err)
			}
		}
		if section == "start" {
			if err := writeWarmup(&out, s.Start.Warmup); err != nil {
				return nil, err
			}
		}
	}
	return out.Bytes(), nil
}

func writeKey(out *bytes.Buffer, name string, value any) error {
	if b, ok := value.(Bands); ok {
		value = b.encoded()
	}
	encoder := toml.NewEncoder(out)
	encoder.SetTablesInline(true)
	return encoder.Encode(map[string]any{name: value})
}

func writeWarmup(out *bytes.Buffer, messages []Warmup) error {
	for i, w := range messages {
		at := fmt.Sprintf("start.warmup[%d].params", i)
		params, err := tomlParams(w.Params)
		if err != nil {
			return &Error{Key: at, Problem: err.Error(), Allowed: "values that TOML can represent"}
		}
		fmt.Fprint(out, "\n[[start.warmup]]\n")
		for _, field := range []struct {
			name  string
			value any
		}{{"method", w.Method}, {"params", params}, {"notification", w.Notification}} {
			if err := writeKey(out, field.name, field.value); err != nil {
				return fmt.Errorf("write start.warmup[%d].%s: %w", i, field.name, err)
			}
		}
	}
	return nil
}

func tomlParams(params json.RawMessage) (any, error) {
	if len(params) == 0 {
		return map[string]any{}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(params))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("cannot be read as JSON: %w", err)
	}
	return tomlValue(value)
}

// tomlValue converts decoded JSON to values that the TOML encoder writes unchanged.
func tomlValue(v any) (any, error) {
	switch v := v.(type) {
	case nil:
		return nil, fmt.Errorf("contain a null, which TOML cannot represent")
	case json.Number:
		return tomlNumber(v)
	case []any:
		list := make([]any, len(v))
		for i, element := range v {
			converted, err := tomlValue(element)
			if err != nil {
				return nil, err
			}
			list[i] = converted
		}
		return list, nil
	case map[string]any:
		table := make(map[string]any, len(v))
		for name, element := range v {
			converted, err := tomlValue(element)
			if err != nil {
				return nil, err
			}
			table[name] = converted
		}
		return table, nil
	}
	return v, nil
}

// tomlNumber keeps whole numbers whole, except −0, which only a float can represent.
func tomlNumber(n json.Number) (any, error) {
	if whole, err := strconv.ParseInt(string(n), 10, 64); err == nil && n != "-0" {
		return whole, nil
	}
	float, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("contain the number %s, which TOML cannot represent", n)
	}
	return float, nil
}
