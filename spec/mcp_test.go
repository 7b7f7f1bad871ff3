package spec

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClientsOfMCPHaveTheToolsThatTheirGlobsMatch(t *testing.T) {
	m := MCP{Tools: []string{"read*", "repo*"}, ToolsDeny: []string{"*delete*"}}
	for tool, want := range map[string]bool{"read": true, "read_file": true, "write": false, "repo/read": true,
		"repo/delete": false, "": false} {
		require.Equal(t, want, m.Serves(tool), tool)
	}
	require.True(t, MCP{}.Serves("x"))
	require.False(t, MCP{ToolsDeny: []string{"*"}}.Serves("a/b"))
}
