package events

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestTheManualListsExactlyTheTypes(t *testing.T) {
	page, err := os.ReadFile("../docs/events.md")
	require.NoError(t, err)
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+\\.[a-z_]+)` \\| (?:worker|pool|host)").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, row[1])
	}
	require.ElementsMatch(t, api.EventTypes(), listed)
}
