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
	rules := strings.Split(docs.Read(t, "deploy/prometheus/alerts.yml"), "- alert: ")[1:]
	for _, rule := range rules {
		alert, _, _ := strings.Cut(rule, "\n")
		section := strings.ToLower(alert)
		require.Contains(t, sections, section)
		require.Contains(t, rule, `runbook_url: "`+runbookPage+"#"+section+`"`)
		reached[section] = true
	}
	require.Empty(t, slices.DeleteFunc(sections, func(section string) bool { return reached[section] }),
		"no problem leads to these sections")
	mail := docs.Read(t, "deploy/prometheus/alertmanager.yml")
	require.Contains(t, mail, "{{ .Annotations.runbook_url }}")
}
