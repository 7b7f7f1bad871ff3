package metrics

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/lint/docs"
)

// manual returns the text of the operations manual.
func manual(t *testing.T) string {
	t.Helper()
	return strings.Join(slices.Collect(maps.Values(docs.Texts(t, "docs/operations/*.md"))), "")
}

// stored returns the names of the time series of the catalogue.
func stored() map[string]bool {
	names := map[string]bool{}
	for _, m := range catalogue {
		if m.Kind != Histogram {
			names[m.Name] = true
			continue
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			names[m.Name+suffix] = true
		}
	}
	return names
}

func TestAlertsDashboardAndPagesNameExistingMetrics(t *testing.T) {
	require.Contains(t, docs.Read(t, "deploy/grafana/dashboards/tempool.json"), "tempool_")
	series, either := stored(), stored()
	for _, m := range catalogue {
		either[m.Name] = true
	}
	name := regexp.MustCompile(`\btempool_[a-z_]+[a-z]\b`)
	for file, text := range docs.Texts(t, "*.md", "docs/*.md", "docs/*/*.md", "examples/*/README.md",
		"deploy/prometheus/*.yml", "deploy/grafana/dashboards/*.json") {
		known := either
		if strings.HasPrefix(file, "deploy/") { // it queries them
			known = series
		}
		for _, found := range name.FindAllString(text, -1) {
			require.True(t, known[found], "%s names %s", file, found)
		}
	}
}

func TestEveryAlertHasASummaryAnActionAnEntryInTheManualAndTests(t *testing.T) {
	rules := strings.Split(docs.Read(t, "deploy/prometheus/alerts.yml"), "- alert: ")[1:]
	require.NotEmpty(t, rules)
	entries, tests := manual(t), docs.Read(t, "deploy/prometheus/alerts_test.yml")
	for _, rule := range rules {
		name, _, _ := strings.Cut(rule, "\n")
		require.Regexp(t, `(?m)^ +summary: "[A-Z1{].+"$`, rule, name)
		require.Regexp(t, `(?m)^ +action: "\w.+"$`, rule, name)
		require.Regexp(t, `severity: (critical|warning|info)`, rule, name)
		require.Contains(t, entries, "\n### "+name+"\n", "the operations manual has no entry")
		require.Contains(t, tests, "alertname: "+name+"\n        exp_alerts:\n", "no test where it fires")
		require.Contains(t, tests, "alertname: "+name+", exp_alerts: []", "no test where it does not fire")
	}
	require.Equal(t, len(rules), strings.Count(entries, "\n### Tempool"),
		"the operations manual has entries for alerts that do not exist")
}
