package metrics

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryPageNamesExistingMetrics(t *testing.T) {
	known := stored()
	for _, m := range catalogue {
		known[m.Name] = true
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*/README.md"} {
		files, err := filepath.Glob("../../" + pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			for _, name := range regexp.MustCompile(`\btempool_[a-z_]+[a-z]\b`).FindAllString(read(t, strings.TrimPrefix(filepath.ToSlash(file), "../../")), -1) {
				require.True(t, known[name], "%s names %s", file, name)
			}
		}
	}
}
