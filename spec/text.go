package spec

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// Text is a pool.toml of the spec: its name, and each key whose value is not the default, in the order of the
// documentation. Parse reads the same spec from it, if it is valid.
func (s Spec) Text() string {
	own, defaults := treeOf(s), treeOf(Default())
	var text strings.Builder
	section := ""
	for _, k := range keys {
		value := own[k.section][k.name]
		if k.key() != "pool.name" && tomlValue(value) == tomlValue(defaults[k.section][k.name]) {
			continue
		}
		if k.section != section {
			if section != "" {
				text.WriteByte('\n')
			}
			section = k.section
			text.WriteString("[" + section + "]\n")
		}
		text.WriteString(k.name + " = " + tomlValue(value) + "\n")
	}
	return text.String()
}

// Change is a key in which two specs differ, or a variable of pool.env. From and To are its values in TOML, "" where
// there is none.
type Change struct {
	Key  string `json:"key"`
	From string `json:"from"`
	To   string `json:"to"`
}

// RestartsWorkers reports whether the workers of a running pool restart for the change: for all but those of its size.
func (c Change) RestartsWorkers() bool {
	return c.Key != "pool.size" && !strings.HasPrefix(c.Key, "scale.")
}

// Changes lists what a change of a spec changes, in the order of the documentation.
func Changes(from, to Spec) (changes []Change) {
	a, b := treeOf(from), treeOf(to)
	for _, k := range keys {
		before, after := a[k.section][k.name], b[k.section][k.name]
		if k.value(&from).Kind() == reflect.Map {
			changes = append(changes, variableChanges(k.key(), before, after)...)
		} else if x, y := tomlValue(before), tomlValue(after); x != y {
			changes = append(changes, Change{k.key(), x, y})
		}
	}
	return changes
}

func variableChanges(key string, before, after any) (changes []Change) {
	a, _ := before.(map[string]any)
	b, _ := after.(map[string]any)
	names := append(sortedNames(a), sortedNames(b)...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		c := Change{Key: key + "." + tomlKey(name)}
		if value, set := a[name]; set {
			c.From = tomlValue(value)
		}
		if value, set := b[name]; set {
			c.To = tomlValue(value)
		}
		if c.From != c.To {
			changes = append(changes, c)
		}
	}
	return changes
}

// treeOf are the values of a spec by section and key, as JSON has them. One that is null is the default, as for
// Spec.UnmarshalJSON.
func treeOf(s Spec) map[string]map[string]any {
	tree, defaults := encodedTree(s), encodedTree(Default())
	for section, values := range tree {
		for name, value := range values {
			if value == nil {
				values[name] = defaults[section][name]
			}
		}
	}
	return tree
}

func encodedTree(s Spec) (tree map[string]map[string]any) {
	encoded, err := json.Marshal(s)
	if err != nil {
		return nil // a warm-up's params are no JSON; no such spec is valid
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	_ = decoder.Decode(&tree) // it was encoded a moment ago
	return tree
}

// tomlValue is a value of JSON in TOML, on one line. TOML has no null, which is left out of tables and lists.
func tomlValue(v any) string {
	switch v := v.(type) {
	case string:
		return tomlString(v)
	case bool:
		if v {
			return "true"
		}
		return "false"
	case json.Number:
		return v.String()
	case []any:
		var items []string
		for _, item := range v {
			if item != nil {
				items = append(items, tomlValue(item))
			}
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]any:
		var items []string
		for _, name := range sortedNames(v) {
			if v[name] != nil {
				items = append(items, tomlKey(name)+" = "+tomlValue(v[name]))
			}
		}
		if len(items) == 0 {
			return "{}"
		}
		return "{ " + strings.Join(items, ", ") + " }"
	}
	return `""`
}

// tomlString is a basic string of TOML: JSON's, but that DEL is escaped, too.
func tomlString(text string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string can always be encoded
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}

// tomlKey is a key, quoted where TOML requires it.
func tomlKey(name string) string {
	if quoted := quoteKey(name); quoted == name {
		return name
	}
	return tomlString(name)
}
