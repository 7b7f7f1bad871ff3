package spec

import (
	"bytes"
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
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = parseDuration(string(text))
	return err
}

// UnmarshalJSON parses a string, or the number 0. It rejects any other number, which has no unit.
func (d *Duration) UnmarshalJSON(data []byte) error {
	text, err := unitText(data, durationAllowed)
	if err != nil {
		return err
	}
	return d.UnmarshalText([]byte(text))
}

func parseDuration(text string) (Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not %s", text, durationAllowed)
	}
	return Duration(d), nil
}

// unitText returns the content of a JSON string. The number 0 is the same as "".
func unitText(data []byte, form string) (string, error) {
	if bytes.Equal(data, []byte("0")) {
		return "", nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil || string(data) == "null" {
		return "", fmt.Errorf("%s is not a string; write %s", data, form)
	}
	return text, nil
}
