package spec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// durationAllowed describes a duration, for errors.
const durationAllowed = `a duration such as "500ms", "30s", "5m" or "24h"`

// Duration is a time.Duration that is encoded as a string: "30s", "1h30m". An empty string and 0 mean 0, which only
// some keys allow.
type Duration time.Duration

// D returns the duration as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String returns the shortest text that parses as d: "24h", not "24h0m0s".
func (d Duration) String() string {
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// MarshalText returns String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses what time.ParseDuration parses; "" is 0.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(cmp.Or(string(text), "0"))
	if err != nil {
		return fmt.Errorf("%q is not %s", text, durationAllowed)
	}
	*d = Duration(parsed)
	return nil
}

// UnmarshalJSON parses a string, or the number 0. It rejects any other number, which has no unit.
func (d *Duration) UnmarshalJSON(data []byte) error {
	if string(data) == "0" {
		*d = 0
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil || string(data) == "null" {
		return fmt.Errorf("%s is not a string; write %s", data, durationAllowed)
	}
	return d.UnmarshalText([]byte(text))
}
