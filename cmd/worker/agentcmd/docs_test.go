package agentcmd

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/lint/docs"
)

func TestTheManualListsExactlyTheFlags(t *testing.T) {
	listed := map[string]bool{}
	for _, cell := range docs.FirstColumn(t, docs.Read(t, "docs/operations/deploy.md"), "| flag | meaning |") {
		for _, flag := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(cell, -1) {
			listed[flag[1]] = true
		}
	}
	want := map[string]bool{}
	for _, flag := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`).FindAllStringSubmatch(
		newCommand().Flags().FlagUsages(), -1) {
		want[flag[1]] = true
	}
	require.Equal(t, want, listed)
}
