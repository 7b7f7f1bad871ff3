package spec

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
)

// form is the type of a key's value.
type form int

const (
	text form = iota
	integer
	number
	boolean
	duration
	size
	texts
	integers
	numbers
	autoNumbers
	variables
	warmups
	anything
)

// keyInfo is one key of the file. The sections and keys are the fields of Spec, in their order.
type keyInfo struct {
	section, name string
	form          form
	index         []int
}

func (k keyInfo) key() string { return k.section + "." + k.name }

func (k keyInfo) value(s *Spec) reflect.Value { return reflect.ValueOf(s).Elem().FieldByIndex(k.index) }

var (
	sections   []string
	keys       []keyInfo
	keyByName  = map[string]keyInfo{}
	warmupKeys = map[string]form{"method": text, "params": anything, "notification": boolean}
)

func init() {
	spec := reflect.TypeFor[Spec]()
	for i := range spec.NumField() {
		section := spec.Field(i)
		sections = append(sections, section.Tag.Get("toml"))
		for j := range section.Type.NumField() {
			field := section.Type.Field(j)
			k := keyInfo{section: section.Tag.Get("toml"), name: field.Tag.Get("toml"), form: formOf(field.Type), index: []int{i, j}}
			keys = append(keys, k)
			keyByName[k.key()] = k
		}
	}
}

func formOf(t reflect.Type) form {
	switch t {
	case reflect.TypeFor[Duration]():
		return duration
	case reflect.TypeFor[Bytes]():
		return size
	case reflect.TypeFor[[]string]():
		return texts
	case reflect.TypeFor[[]int]():
		return integers
	case reflect.TypeFor[[]float64]():
		return numbers
	case reflect.TypeFor[Bands]():
		return autoNumbers
	case reflect.TypeFor[map[string]string]():
		return variables
	case reflect.TypeFor[[]Warmup]():
		return warmups
	}
	switch t.Kind() {
	case reflect.String:
		return text
	case reflect.Int:
		return integer
	case reflect.Float64:
		return number
	case reflect.Bool:
		return boolean
	}
	panic(fmt.Sprintf("spec: keys of type %s are not supported", t))
}

// allowed describes the form, for errors about values of another form.
func (f form) allowed() string {
	return [...]string{
		text: "a string in quotes", integer: "a whole number", number: "a number", boolean: "true or false", duration: durationAllowed, size: bytesAllowed,
		texts: `a list of strings such as ["a", "b"]`, integers: "a list of whole numbers such as [0, 1]",
		numbers:     "a list of numbers such as [20, 50, 80, 95]",
		autoNumbers: `a list of numbers such as [100, 250, 500, 750], or "auto"`,
		variables:   `a table of strings such as { LANG = "C" }`,
		warmups:     "a list of tables", anything: "any value",
	}[f]
}

// mismatch returns where below the key, and why, a decoded TOML or JSON value does not have the form; no problem means that it has.
func (f form) mismatch(v any) (at, problem string) {
	fits := true
	switch f {
	case text:
		_, fits = v.(string)
	case boolean:
		_, fits = v.(bool)
	case integer:
		fits = isWhole(v)
	case number:
		fits = isFinite(v)
	case duration:
		return "", unitMismatch(v, "duration", func(s string) error { _, err := parseDuration(s); return err })
	case size:
		return "", unitMismatch(v, "size", func(s string) error { _, err := parseBytes(s); return err })
	case texts:
		return listMismatch(v, text)
	case integers:
		return listMismatch(v, integer)
	case numbers:
		return listMismatch(v, number)
	case autoNumbers:
		if v == autoText {
			return "", ""
		}
		return listMismatch(v, number)
	case variables:
		return tableMismatch(v)
	case warmups:
		return warmupMismatch(v)
	case anything:
		if isDeeperThan(v, maxParamsDepth) {
			return "", fmt.Sprintf("are nested more than %d levels deep", maxParamsDepth)
		}
		if _, err := json.Marshal(v); err != nil {
			return "", unsupportedValue(err) + " cannot be represented in JSON"
		}
	}
	if !fits {
		return "", kindOf(v)
	}
	return "", ""
}

// unsupportedValue returns the value that an error of json.Marshal names.
func unsupportedValue(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "json: "), "unsupported value: ")
}

// maxParamsDepth is more than any protocol needs, and less than JSON parsers reject.
const maxParamsDepth = 100

func isDeeperThan(v any, levels int) bool {
	if levels < 0 {
		return true
	}
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return isDeeperThan(e, levels-1) })
	case map[string]any:
		for _, e := range v {
			if isDeeperThan(e, levels-1) {
				return true
			}
		}
	}
	return false
}

func isWhole(v any) bool {
	switch n := v.(type) {
	case int64:
		return true
	case json.Number:
		_, err := n.Int64()
		return err == nil
	}
	return false
}

func isFinite(v any) bool {
	switch n := v.(type) {
	case int64:
		return true
	case float64:
		return !math.IsInf(n, 0) && !math.IsNaN(n)
	case json.Number:
		_, err := n.Float64()
		return err == nil
	}
	return false
}

func unitMismatch(v any, what string, parse func(string) error) string {
	switch v := v.(type) {
	case string:
		if parse(v) == nil {
			return ""
		}
		return fmt.Sprintf("%q is not a %s", v, what)
	case int64:
		if v == 0 {
			return ""
		}
		return fmt.Sprintf("%d has no unit", v)
	case json.Number:
		if v == "0" {
			return ""
		}
		return fmt.Sprintf("%s has no unit", v)
	}
	return kindOf(v)
}

func listMismatch(v any, element form) (at, problem string) {
	list, ok := v.([]any)
	if !ok {
		return "", kindOf(v)
	}
	for i, e := range list {
		if _, problem := element.mismatch(e); problem != "" {
			return fmt.Sprintf("[%d]", i), problem
		}
	}
	return "", ""
}

func tableMismatch(v any) (at, problem string) {
	table, ok := v.(map[string]any)
	if !ok {
		return "", kindOf(v)
	}
	for _, name := range sortedNames(table) {
		if _, problem := text.mismatch(table[name]); problem != "" {
			return "." + quoteKey(name), problem
		}
	}
	return "", ""
}

func warmupMismatch(v any) (at, problem string) {
	list, ok := v.([]any)
	if !ok {
		return "", kindOf(v)
	}
	for i, e := range list {
		table, ok := e.(map[string]any)
		if !ok {
			return fmt.Sprintf("[%d]", i), kindOf(e)
		}
		for _, name := range sortedNames(table) {
			f, found := warmupKeys[name]
			if !found || table[name] == nil {
				continue
			}
			if _, problem := f.mismatch(table[name]); problem != "" {
				return fmt.Sprintf("[%d].%s", i, name), problem
			}
		}
	}
	return "", ""
}

// kindOf describes a value of the wrong form.
func kindOf(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%q is a string", v)
	case bool:
		return fmt.Sprintf("%t is a boolean", v)
	case int64:
		return fmt.Sprintf("%d is a whole number", v)
	case float64:
		if !isFinite(v) {
			return fmt.Sprintf("%v is not finite", v)
		}
		return fmt.Sprintf("%v is a fractional number", v)
	case json.Number:
		return fmt.Sprintf("%s is a number", v)
	case []any:
		return "is a list"
	case map[string]any:
		return "is a table"
	case nil:
		return "is null"
	}
	return "is a date or a time"
}
