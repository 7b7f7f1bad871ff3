package spec

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASpecIsBounded(t *testing.T) {
	s := Default()
	s.Pool.Name, s.Pool.Command = "hello", []string{"true"}
	s.Pool.Env = map[string]string{"LARGE": strings.Repeat("x", 45<<10)}
	require.NoError(t, s.Validate())
	s.Pool.Env["LARGE"] = strings.Repeat("x", MaxBytes)
	require.ErrorContains(t, s.Validate(), "the spec is too large: it has 6")
	require.ErrorContains(t, s.Validate(), "at most 65536 bytes in all")
}
