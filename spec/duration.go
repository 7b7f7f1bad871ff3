package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// durationAllowed is what a duration may look like, for error sentences.
const durationAllowed = `a duration such as "500ms", "30s", "5m" or "24h"`

// Duration is a span of time that reads and writes as text: "30s", "1h30m". An empty text and a bare 0 are no time at all,
// which only keys that document it accept.
type Duration time.Duration

// D returns the span as the standard library's type.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String is the shortest text that reads back as d: "24h", never "24h0m0s".
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

// MarshalText writes String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what time.ParseDuration reads, and "" as 0.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := parseDuration(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// UnmarshalJSON reads a string, or the number 0; any other number has no unit and is refused.
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

// unitText returns the text inside a JSON string. A bare 0 needs no unit and is the same as "".
func unitText(data []byte, form string) (string, error) {
	if bytes.Equal(data, []byte("0")) {
		return "", nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil || string(data) == "null" {
		return "", fmt.Errorf("%s is not text: write %s", data, form)
	}
	return text, nil
}
