package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestActionPriceFollowsTheTiers(t *testing.T) {
	require.InDelta(t, 0, actionPrice(0), 1e-9)
	require.InDelta(t, 525, actionPrice(11.25e6), 1e-6, "the example of the price list")
	require.InDelta(t, 250+225+400+1_050+1_500+2_500+25_000, actionPrice(1_200e6), 1e-6)
}
