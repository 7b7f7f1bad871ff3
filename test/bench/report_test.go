package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASeriesHasItsMedianAndQuartiles(t *testing.T) {
	s := &series{}
	s.add(9, 1, 5)
	s.add(3, 7)
	require.Equal(t, []float64{9, 1, 5, 3, 7}, s.Values)
	require.Equal(t, []float64{1, 3, 5, 7, 9}, []float64{s.Min, s.Low, s.Median, s.High, s.Max})
}

func TestTheMedianOfAnEvenNumberOfValuesIsTheMeanOfTheMiddleTwo(t *testing.T) {
	require.Equal(t, 2.5, median([]float64{4, 1, 3, 2}))
	require.Equal(t, 4.0, median([]float64{4}))
}

func TestRatiosAreTakenPerRound(t *testing.T) {
	over, under := &series{}, &series{}
	over.add(10, 300)
	under.add(5, 100)
	require.Equal(t, []float64{2, 3}, (&result{}).ratio("r", over, under).Values)
}

func TestATargetIsMetOrMissed(t *testing.T) {
	r := &result{}
	r.atMost("a", 250, 250, "ms")
	r.atMost("b", 251, 250, "ms")
	r.atLeast("c", 0.9, 0.9, "×")
	r.atLeast("d", 0.8, 0.9, "×")
	met := []bool{}
	for _, v := range r.Targets {
		met = append(met, v.Met)
	}
	require.Equal(t, []bool{true, false, true, false}, met)
}
