package metrics

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/lint/docs"
)

func TestEveryPageNamesExistingMetrics(t *testing.T) {
	known := stored()
	for _, m := range catalogue {
		known[m.Name] = true
	}
	for file, text := range docs.Texts(t, "*.md", "docs/*.md", "docs/*/*.md", "examples/*/README.md") {
		for _, name := range regexp.MustCompile(`\btempool_[a-z_]+[a-z]\b`).FindAllString(text, -1) {
			require.True(t, known[name], "%s names %s", file, name)
		}
	}
}
