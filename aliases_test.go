package tempool_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheClientHasEveryTargetOfErrors(t *testing.T) {
	defined, err := os.ReadFile("api/errors.go")
	require.NoError(t, err)
	aliases, err := os.ReadFile("aliases.go")
	require.NoError(t, err)
	names := regexp.MustCompile(`(?m)^\t(Err[A-Z]\w*) += `).FindAllStringSubmatch(string(defined), -1)
	require.Greater(t, len(names), 30)
	var missing []string
	for _, name := range names {
		if !strings.Contains(string(aliases), "= api."+name[1]+"\n") {
			missing = append(missing, name[1])
		}
	}
	require.Empty(t, missing)
}
