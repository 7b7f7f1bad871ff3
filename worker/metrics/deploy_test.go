package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile("../../" + path)
	require.NoError(t, err)
	return string(content)
}

// series are the names under which the metrics of the catalogue are stored.
func stored() map[string]bool {
	names := map[string]bool{}
	for _, m := range Catalogue() {
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

func TestAlertsAndDashboardAskForMetricsThatThereAre(t *testing.T) {
	known := stored()
	for _, file := range []string{"deploy/prometheus/alerts.yml", "deploy/prometheus/alerts_test.yml", "deploy/grafana/dashboards/tempool.json"} {
		found := regexp.MustCompile(`\btempool_[a-z_]+`).FindAllString(read(t, file), -1)
		require.NotEmpty(t, found)
		for _, name := range found {
			require.True(t, known[name], "%s asks for %s", file, name)
		}
	}
}

func TestEveryAlertSaysWhatItIsAndWhatToDoAndHasAPageAndATest(t *testing.T) {
	rules := strings.Split(read(t, "deploy/prometheus/alerts.yml"), "- alert: ")[1:]
	require.NotEmpty(t, rules)
	manual, tests := read(t, "docs/operations/alerts.md"), read(t, "deploy/prometheus/alerts_test.yml")
	for _, rule := range rules {
		name, _, _ := strings.Cut(rule, "\n")
		require.Regexp(t, `(?m)^ +summary: "[A-Z1{].+"$`, rule, name)
		require.Regexp(t, `(?m)^ +action: "\w.+"$`, rule, name)
		require.Regexp(t, `severity: (critical|warning|info)`, rule, name)
		require.Contains(t, manual, "\n### "+name+"\n", "the manual has no entry for it")
		require.Contains(t, tests, "alertname: "+name+"\n        exp_alerts:\n", "no test makes it fire")
		require.Contains(t, tests, "alertname: "+name+", exp_alerts: []", "no test sees it quiet")
	}
	require.Equal(t, len(rules), strings.Count(manual, "\n### Tempool"), "the manual has entries for alerts that do not exist")
}

func TestTheDashboardIsJSONWithPanelsThatDoNotOverlap(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
			Type    string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "deploy/grafana/dashboards/tempool.json")), &dashboard))
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
