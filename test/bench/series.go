package main

import "slices"

// series holds the values of one quantity, one per round or event.
type series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
	// Median, quartiles, minimum and maximum of Values.
	Median float64 `json:"median"`
	Low    float64 `json:"q1"`
	High   float64 `json:"q3"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func (s *series) add(values ...float64) {
	s.Values = append(s.Values, values...)
	sorted := slices.Sorted(slices.Values(s.Values))
	s.Median, s.Low, s.High = quantile(sorted, 0.5), quantile(sorted, 0.25), quantile(sorted, 0.75)
	s.Min, s.Max = sorted[0], sorted[len(sorted)-1]
}

// quantile interpolates linearly between the two nearest values. sorted must not be empty.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below+1 == len(sorted) {
		return sorted[below]
	}
	return sorted[below] + (at-float64(below))*(sorted[below+1]-sorted[below])
}

func median(values []float64) float64 { return quantile(slices.Sorted(slices.Values(values)), 0.5) }

// ratios divides the values of two series per round, so that the load of the machine in a round cancels out.
func ratios(name string, over, under *series) *series {
	r := &series{Name: name, Unit: "×"}
	for i := range min(len(over.Values), len(under.Values)) {
		r.add(over.Values[i] / under.Values[i])
	}
	return r
}
