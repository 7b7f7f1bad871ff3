package agentcmd

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheManualListsExactlyTheFlags(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operations/deploy.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "| flag | meaning |\n")
	require.True(t, found)
	table, _, _ := strings.Cut(rest, "\n\n")
	listed := map[string]bool{}
	for row := range strings.Lines(table) {
		cells := strings.SplitN(row, " | ", 2)
		for _, flag := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(cells[0], -1) {
			listed[flag[1]] = true
		}
	}
	want := map[string]bool{}
	for _, flag := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`).FindAllStringSubmatch(newCommand().Flags().FlagUsages(), -1) {
		want[flag[1]] = true
	}
	require.Equal(t, want, listed)
}
