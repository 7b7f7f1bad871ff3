package metrics

import (
	"encoding/json"
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

func TestAlertsAndDashboardQueryExistingMetrics(t *testing.T) {
	known := stored()
	for _, file := range []string{"deploy/prometheus/alerts.yml", "deploy/prometheus/alerts_test.yml",
		"deploy/grafana/dashboards/tempool.json"} {
		found := regexp.MustCompile(`\btempool_[a-z_]+`).FindAllString(docs.Read(t, file), -1)
		require.NotEmpty(t, found)
		for _, name := range found {
			require.True(t, known[name], "%s queries %s", file, name)
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

func TestThePanelsOfTheDashboardDoNotOverlap(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
			Type    string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(docs.Read(t, "deploy/grafana/dashboards/tempool.json")), &dashboard))
	taken := map[[2]int]string{}
	for _, p := range dashboard.Panels {
		if p.Type != "row" {
			require.NotEmpty(t, p.Targets, p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			require.Less(t, x, 24, p.Title)
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
