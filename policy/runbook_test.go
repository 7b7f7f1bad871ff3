package policy

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/lint/docs"
)

func TestEveryKindOfProblemHasASectionOfTheRunbookAndEverySectionAKind(t *testing.T) {
	const page = "docs/operations/alerts.md"
	require.True(t, strings.HasSuffix(runbookPage, page))
	var sections []string
	for _, heading := range regexp.MustCompile(`(?m)^### (.+)$`).FindAllStringSubmatch(docs.Read(t, page), -1) {
		sections = append(sections, strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-"))
	}
	reached := map[string]bool{}
	for kind, section := range runbooks {
		require.Contains(t, sections, section, kind)
		reached[section] = true
	}
	rules := docs.Read(t, "deploy/prometheus/alerts.yml")
	for _, alert := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1) {
		reached[strings.ToLower(alert[1])] = true
	}
	require.Empty(t, slices.DeleteFunc(sections, func(section string) bool { return reached[section] }),
		"no problem leads to these sections")
	mail := docs.Read(t, "deploy/prometheus/alertmanager.yml")
	require.Contains(t, mail, runbookPage+"#{{ .Labels.alertname | toLower }}")
}
