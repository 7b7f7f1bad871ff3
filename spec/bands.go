package spec

import (
	"bytes"
	"encoding/json"
)

// Bands are four rising values at which a worker stops being excellent, good, degraded and critical. Without values
// there is no grade; nil is "auto": the values follow from the memory that each program needs.
type Bands []float64

// AutoBands are the Bands "auto".
var AutoBands Bands

// MarshalJSON returns a list, or "auto".
func (b Bands) MarshalJSON() ([]byte, error) {
	if b == nil {
		return json.Marshal(autoText)
	}
	return json.Marshal([]float64(b))
}

// UnmarshalJSON parses a list, or "auto".
func (b *Bands) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte(`"`+autoText+`"`)) {
		*b = AutoBands
		return nil
	}
	return json.Unmarshal(data, (*[]float64)(b))
}
