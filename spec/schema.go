package spec

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// keyInfo is one key of the file. The sections and keys are the fields of Spec, in their order.
type keyInfo struct {
	section, name string
	index         []int
	rule
}

func (k keyInfo) key() string { return k.section + "." + k.name }

func (k keyInfo) value(s *Spec) reflect.Value { return reflect.ValueOf(s).Elem().FieldByIndex(k.index) }

// set sets the key of s to a decoded value, whose form it checks.
func (k keyInfo) set(s *Spec, v any) *Error {
	at, problem := assign(v, k.value(s).Addr().Interface())
	if problem == "" {
		return nil
	}
	return &Error{Key: k.key() + at, Problem: problem, Allowed: k.allowed}
}

var (
	sections  []string
	keys      []keyInfo
	keyByName = map[string]keyInfo{}
	defaults  Spec // what Default returns, but for its tables
)

// warmupKeys are the keys of a warm-up, each with its field.
var warmupKeys = map[string]func(*Warmup) any{
	"method":       func(w *Warmup) any { return &w.Method },
	"params":       func(w *Warmup) any { return &w.Params },
	"notification": func(w *Warmup) any { return &w.Notification },
}

func init() {
	for section := range reflect.TypeFor[Spec]().Fields() {
		sections = append(sections, section.Tag.Get("json"))
		for field := range section.Type.Fields() {
			k := keyInfo{section: section.Tag.Get("json"), name: field.Tag.Get("json"),
				index: slices.Concat(section.Index, field.Index)}
			k.rule = ruleOf(k.key(), field)
			keys = append(keys, k)
			keyByName[k.key()] = k
			if value := k.value(&defaults); value.Kind() == reflect.Slice {
				value.Set(reflect.MakeSlice(field.Type, 0, 0))
			}
			if text, found := field.Tag.Lookup("default"); found {
				assignText(text, k.value(&defaults).Addr().Interface())
			}
		}
	}
}

// Default returns the defaults of all keys. It validates once Pool.Name and Pool.Command are set, which have none.
// Lists and tables are empty, not nil, so that a spec stays equal to itself through JSON.
func Default() Spec {
	s := defaults
	for _, k := range keys {
		if table := k.value(&s); table.Kind() == reflect.Map { // an empty list has no room to share
			table.Set(reflect.MakeMap(table.Type()))
		}
	}
	return s
}

// assignText sets a field of a spec, or a bound of one, to what its tag says.
func assignText(text string, field any) {
	var v any = text
	switch field.(type) {
	case *int, *float64:
		v = json.Number(text)
	case *bool:
		v = text == "true"
	}
	if _, problem := assign(v, field); problem != "" {
		panic("spec: a tag says " + text + ": " + problem)
	}
}

// assign sets a field of a spec to a decoded value of TOML or JSON. If the value has another form, assign says where
// below the field, and why; do not use the field then.
func assign(v, field any) (at, problem string) {
	fits := false
	switch field := field.(type) {
	case *string:
		*field, fits = v.(string)
	case *bool:
		*field, fits = v.(bool)
	case *int:
		*field, fits = wholeNumber(v)
	case *float64:
		*field, fits = finiteNumber(v)
	case *Duration:
		return "", assignUnit(v, "duration", field)
	case *Bytes:
		return "", assignUnit(v, "size", field)
	case *[]string:
		return assignList(v, field)
	case *[]int:
		return assignList(v, field)
	case *[]float64:
		return assignList(v, field)
	case *Bands:
		if v != autoText {
			return assignList(v, (*[]float64)(field))
		}
		*field, fits = AutoBands, true
	case *map[string]string:
		return assignTable(v, field)
	case *[]Warmup:
		return assignList(v, field)
	case *Warmup:
		return assignWarmup(v, field)
	case *json.RawMessage:
		return "", assignParams(v, field)
	default:
		panic(fmt.Sprintf("spec: fields of type %T are not supported", field))
	}
	if !fits {
		return "", kindOf(v)
	}
	return "", ""
}

func wholeNumber(v any) (n int, fits bool) {
	switch v := v.(type) {
	case int64:
		return int(v), true
	case json.Number:
		n, err := strconv.Atoi(v.String())
		return n, err == nil
	}
	return 0, false
}

func finiteNumber(v any) (n float64, fits bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, !math.IsInf(v, 0) && !math.IsNaN(v)
	case json.Number:
		n, err := v.Float64()
		return n, err == nil
	}
	return 0, false
}

func assignUnit(v any, what string, field encoding.TextUnmarshaler) (problem string) {
	switch v := v.(type) {
	case string:
		if field.UnmarshalText([]byte(v)) != nil {
			return fmt.Sprintf("%q is not a %s", v, what)
		}
		return ""
	case int64, json.Number:
		if text := fmt.Sprint(v); text != "0" {
			return text + " has no unit"
		}
		return assignUnit("0", what, field)
	}
	return kindOf(v)
}

func assignList[T any](v any, field *[]T) (at, problem string) {
	list, fits := v.([]any)
	if !fits {
		return "", kindOf(v)
	}
	*field = make([]T, len(list))
	for i, element := range list {
		if at, problem := assign(element, &(*field)[i]); problem != "" {
			return fmt.Sprintf("[%d]%s", i, at), problem
		}
	}
	return "", ""
}

func assignTable(v any, field *map[string]string) (at, problem string) {
	table, fits := v.(map[string]any)
	if !fits {
		return "", kindOf(v)
	}
	*field = make(map[string]string, len(table))
	for _, name := range sortedNames(table) {
		text, fits := table[name].(string)
		if !fits {
			return "." + quoteKey(name), kindOf(table[name])
		}
		(*field)[name] = text
	}
	return "", ""
}

// assignWarmup ignores unknown keys, as Spec.UnmarshalJSON does.
func assignWarmup(v any, w *Warmup) (at, problem string) {
	table, fits := v.(map[string]any)
	if !fits {
		return "", kindOf(v)
	}
	w.Params = json.RawMessage("{}")
	for _, name := range sortedNames(table) {
		field, found := warmupKeys[name]
		if !found || table[name] == nil {
			continue
		}
		if _, problem := assign(table[name], field(w)); problem != "" {
			return "." + name, problem
		}
	}
	return "", ""
}

// assignParams allows every value of JSON that is not nested too deeply.
func assignParams(v any, params *json.RawMessage) (problem string) {
	if isDeeperThan(v, maxParamsDepth) {
		return fmt.Sprintf("are nested more than %d levels deep", maxParamsDepth)
	}
	var err error
	if *params, err = json.Marshal(v); err != nil {
		value := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "json: "), "unsupported value: ")
		return value + " cannot be represented in JSON"
	}
	return ""
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
		if _, finite := finiteNumber(v); !finite {
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
