package buildinfo

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/lint/docs"
)

func TestPackagesOfOtherLanguagesHaveTheSameVersion(t *testing.T) {
	v := Read().Version
	require.Regexp(t, `^\d+\.\d+\.\d+$`, v)
	require.Contains(t, docs.Read(t, "sdk/python/pyproject.toml"), `version = "`+v+`"`)
	require.Contains(t, docs.Read(t, "sdk/node/package.json"), `"version": "`+v+`"`)
	require.Contains(t, docs.Read(t, "CHANGELOG.md"), "## "+v)
}
