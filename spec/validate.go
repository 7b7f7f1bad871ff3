package spec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Validate returns the first error of a spec, as Parse does for a file, without a line. The error is a *Error.
func (s Spec) Validate() error {
	if e, _ := check(&s); e != nil {
		return e
	}
	return nil
}

// MaxBytes bounds the JSON of a spec: every start of a worker carries it.
const MaxBytes = 64 << 10

// check returns the first error, and the other key that it is about, if any.
func check(s *Spec) (e *Error, with string) {
	if e := checkRules(s); e != nil {
		return e, ""
	}
	if encoded, err := json.Marshal(s); err == nil && len(encoded) > MaxBytes {
		return &Error{Problem: fmt.Sprintf("the spec is too large: it has %d bytes of JSON", len(encoded)),
			Allowed: fmt.Sprintf("at most %d bytes in all; put large values into files", MaxBytes)}, ""
	}
	return checkConflicts(s)
}

// checkRules returns the error of the first key whose rule s violates.
func checkRules(s *Spec) *Error {
	for _, k := range keys {
		if at, problem := k.check(k.value(s).Interface()); problem != "" {
			return &Error{Key: k.key() + at, Problem: problem, Allowed: k.allowed}
		}
	}
	return nil
}

// holds makes a check of a predicate.
func holds[T any](allowed func(T) bool) func(any) (string, string) {
	return func(v any) (string, string) {
		if allowed(v.(T)) {
			return "", ""
		}
		return "", quoteValue(v) + " is not allowed"
	}
}

// each makes a check of a list of what is wrong with one of its elements.
func each[T any](problemOf func(element T) string) func(any) (string, string) {
	return func(v any) (at, problem string) {
		for i, element := range v.([]T) {
			if problem := problemOf(element); problem != "" {
				return fmt.Sprintf("[%d]", i), problem
			}
		}
		return "", ""
	}
}

// eachNamed makes a check of a table of what is wrong with one of its names and its value.
func eachNamed(problemOf func(name, value string) string) func(any) (string, string) {
	return func(v any) (at, problem string) {
		table := v.(map[string]string)
		for _, name := range sortedNames(table) {
			if problem := problemOf(name, table[name]); problem != "" {
				return "." + quoteKey(name), problem
			}
		}
		return "", ""
	}
}

// between makes a check of a range.
func between[T cmp.Ordered](low, high T) func(any) (string, string) {
	return holds(func(v T) bool { return low <= v && v <= high })
}

// anything is the check of a key whose form says it all.
func anything(any) (string, string) { return "", "" }

const bandsAllowed = "four rising numbers above 0, such as [20, 50, 80, 95]; or [] for no grade"

func bandsProblem(values []float64) (at, problem string) {
	if len(values) != 0 && len(values) != 4 {
		return "", fmt.Sprintf("has %d numbers", len(values))
	}
	last := 0.0
	for i, value := range values {
		if !(value > last) || value > maxCount {
			return fmt.Sprintf("[%d]", i), fmt.Sprintf("%v is not above the number before it", value)
		}
		last = value
	}
	return "", ""
}

// minDuration keeps timers from spinning. Use it for "at once". maxDuration, ten years, keeps sums of durations within
// the range of their type, and the times of timers within that of Temporal's databases. Use it for "never".
const (
	minDuration = Duration(time.Millisecond)
	maxDuration = Duration(10 * 365 * 24 * time.Hour)
)

var durationRange = fmt.Sprintf("%s, from %s to %s", durationAllowed, minDuration, maxDuration)

func oneOf(words []string) rule {
	quotedWords := make([]string, len(words))
	for i, word := range words {
		quotedWords[i] = strconv.Quote(word)
	}
	return rule{orList(quotedWords), holds(func(word string) bool { return slices.Contains(words, word) })}
}

func orList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func commandProblem(v any) (at, problem string) {
	for i, word := range v.([]string) {
		if i == 0 && word == "" {
			return "[0]", "is empty"
		}
		if strings.ContainsRune(word, 0) {
			return fmt.Sprintf("[%d]", i), "contains a NUL character"
		}
	}
	return "", ""
}

func variableProblem(name string) string {
	switch {
	case name == "":
		return "is an empty name"
	case strings.ContainsAny(name, "=\x00"):
		return quoteValue(name) + " is not a valid variable name"
	case strings.HasPrefix(name, "TEMPOOL_"):
		return quoteValue(name) + " is set by Tempool"
	}
	return ""
}

// quoteValue formats a value as in the file. A duration or a size of 0 may also be "" there, so no unit is named.
func quoteValue(v any) string {
	switch v.(type) {
	case string, Duration, Bytes:
		if v == Duration(0) || v == Bytes(0) {
			return "0"
		}
		return strconv.Quote(fmt.Sprint(v))
	}
	return fmt.Sprint(v)
}
