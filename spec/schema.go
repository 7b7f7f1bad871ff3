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
type form struct {
	allowed string // describes it, for errors about values of another form
	// mismatch returns where below the key, and why, a decoded TOML or JSON value does not have the form; no problem means
	// that it has.
	mismatch func(v any) (at, problem string)
}

// problem is what is wrong with a value whose form has no parts.
func (f *form) problem(v any) string {
	_, problem := f.mismatch(v)
	return problem
}

var (
	text     = &form{"a string in quotes", unless(isA[string])}
	integer  = &form{"a whole number", unless(isWhole)}
	number   = &form{"a number", unless(isFinite)}
	boolean  = &form{"true or false", unless(isA[bool])}
	duration = &form{durationAllowed,
		unitMismatch("duration", func(s string) error { _, err := parseDuration(s); return err })}
	size     = &form{bytesAllowed, unitMismatch("size", func(s string) error { _, err := parseBytes(s); return err })}
	texts    = &form{`a list of strings such as ["a", "b"]`, listMismatch(text)}
	integers = &form{"a list of whole numbers such as [0, 1]", listMismatch(integer)}
	numbers  = &form{"a list of numbers such as [20, 50, 80, 95]", listMismatch(number)}

	autoNumbers = &form{`a list of numbers such as [100, 250, 500, 750], or "auto"`, func(v any) (at, problem string) {
		if v == autoText {
			return "", ""
		}
		return numbers.mismatch(v)
	}}
	variables = &form{`a table of strings such as { LANG = "C" }`, tableMismatch}
	warmups   = &form{"a list of tables", warmupMismatch}
	anything  = &form{"any value", paramsMismatch}
)

// forms are those of the types of keys.
var forms = map[reflect.Type]*form{
	reflect.TypeFor[string](): text, reflect.TypeFor[int](): integer, reflect.TypeFor[float64](): number,
	reflect.TypeFor[bool]():     boolean,
	reflect.TypeFor[Duration](): duration, reflect.TypeFor[Bytes](): size,
	reflect.TypeFor[[]string](): texts, reflect.TypeFor[[]int](): integers, reflect.TypeFor[[]float64](): numbers,
	reflect.TypeFor[Bands]():             autoNumbers,
	reflect.TypeFor[map[string]string](): variables, reflect.TypeFor[[]Warmup](): warmups,
}

// keyInfo is one key of the file. The sections and keys are the fields of Spec, in their order.
type keyInfo struct {
	section, name string
	form          *form
	index         []int
}

func (k keyInfo) key() string { return k.section + "." + k.name }

func (k keyInfo) value(s *Spec) reflect.Value { return reflect.ValueOf(s).Elem().FieldByIndex(k.index) }

var (
	sections   []string
	keys       []keyInfo
	keyByName  = map[string]keyInfo{}
	warmupKeys = map[string]*form{"method": text, "params": anything, "notification": boolean}
)

func init() {
	spec := reflect.TypeFor[Spec]()
	for i := range spec.NumField() {
		section := spec.Field(i)
		sections = append(sections, section.Tag.Get("toml"))
		for j := range section.Type.NumField() {
			field := section.Type.Field(j)
			k := keyInfo{section: section.Tag.Get("toml"), name: field.Tag.Get("toml"), form: forms[field.Type],
				index: []int{i, j}}
			if k.form == nil {
				panic(fmt.Sprintf("spec: keys of type %s are not supported", field.Type))
			}
			keys = append(keys, k)
			keyByName[k.key()] = k
		}
	}
}

// unless makes the check of a form that a value has if fits says so.
func unless(fits func(v any) bool) func(any) (string, string) {
	return func(v any) (at, problem string) {
		if fits(v) {
			return "", ""
		}
		return "", kindOf(v)
	}
}

func isA[T any](v any) bool {
	_, is := v.(T)
	return is
}

// paramsMismatch allows every value of JSON that is not nested too deeply.
func paramsMismatch(v any) (at, problem string) {
	if isDeeperThan(v, maxParamsDepth) {
		return "", fmt.Sprintf("are nested more than %d levels deep", maxParamsDepth)
	}
	if _, err := json.Marshal(v); err != nil {
		value := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "json: "), "unsupported value: ")
		return "", value + " cannot be represented in JSON"
	}
	return "", ""
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

func unitMismatch(what string, parse func(string) error) func(any) (string, string) {
	return func(v any) (at, problem string) {
		switch v := v.(type) {
		case string:
			if parse(v) == nil {
				return "", ""
			}
			return "", fmt.Sprintf("%q is not a %s", v, what)
		case int64, json.Number:
			if text := fmt.Sprint(v); text != "0" {
				return "", text + " has no unit"
			}
			return "", ""
		}
		return "", kindOf(v)
	}
}

func listMismatch(element *form) func(any) (string, string) {
	return func(v any) (at, problem string) {
		if !isA[[]any](v) {
			return "", kindOf(v)
		}
		return each(element.problem)(v)
	}
}

func tableMismatch(v any) (at, problem string) {
	if !isA[map[string]any](v) {
		return "", kindOf(v)
	}
	return eachNamed(func(_ string, value any) string { return text.problem(value) })(v)
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
