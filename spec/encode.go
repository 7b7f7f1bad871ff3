package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/pelletier/go-toml/v2"
)

// Encode writes s as a pool.toml with every key, such that Parse gives s back. A spec that Validate refuses is refused
// here with the same error. So are warm-up params with what TOML cannot say: a null, or a number out of its range.
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
	encoder := toml.NewEncoder(out)
	encoder.SetTablesInline(true)
	return encoder.Encode(map[string]any{name: value})
}

func writeWarmup(out *bytes.Buffer, messages []Warmup) error {
	for i, w := range messages {
		at := fmt.Sprintf("start.warmup[%d].params", i)
		params, err := tomlParams(w.Params)
		if err != nil {
			return &Error{Key: at, Problem: err.Error(), Allowed: "what TOML can say"}
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

// tomlValue turns decoded JSON into what the encoder writes as the same value.
func tomlValue(v any) (any, error) {
	switch v := v.(type) {
	case nil:
		return nil, fmt.Errorf("hold a null, which TOML does not have")
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

// tomlNumber keeps whole numbers whole. A minus before 0 survives in a float only.
func tomlNumber(n json.Number) (any, error) {
	if whole, err := strconv.ParseInt(string(n), 10, 64); err == nil && n != "-0" {
		return whole, nil
	}
	float, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("hold the number %s, which TOML cannot say", n)
	}
	return float, nil
}
