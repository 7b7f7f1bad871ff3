package display

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The last output of a program is at the end.
func TestALongReasonKeepsItsEndWithinABound(t *testing.T) {
	for _, filler := range []string{"x", "é", "語", "x é "} {
		reason := "gave up: " + strings.Repeat(filler, 500) + " no space left"
		for _, bound := range []int{60, 61, 62, 63, 120, 800} {
			short := Truncate(reason, bound)
			require.LessOrEqual(t, len(short), bound)
			require.Regexp(t, "^gave up: .*….* no space left$", short)
			require.Equal(t, 1, strings.Count(short, "…"))
		}
	}
	require.Equal(t, "a b", Truncate(" a\nb", 3))
}
