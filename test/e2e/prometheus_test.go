//go:build alerts

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/need"
)

// prometheus is a Prometheus server with the project's alert rules.
type prometheus struct {
	t   *testing.T
	url string
}

// scrapeInterval is long enough for an agent that answers slowly: Prometheus waits no longer than that for an answer.
const scrapeInterval = 2 * time.Second

// waits are the times for which a condition of a rule must hold. Ranges of rules stay: the increase over half an hour
// is there at once.
var waits = regexp.MustCompile(`(?m)^( +for:) .*$`)

// startPrometheus starts a server that scrapes agents, by the instance that names each, with the rules as they are but
// for their waits, which are a second.
func startPrometheus(t *testing.T, agents map[string]string) *prometheus {
	t.Helper()
	need.Program(t, "prometheus")
	rules, err := os.ReadFile(filepath.Join("..", "..", "deploy", "prometheus", "alerts.yml"))
	require.NoError(t, err)
	require.Regexp(t, waits, string(rules))
	targets := []any{}
	for instance, address := range agents {
		targets = append(targets, map[string]any{"targets": []string{address},
			"labels": map[string]string{"instance": instance}})
	}
	config, err := json.Marshal(map[string]any{ // which is YAML
		"global": map[string]string{"scrape_interval": scrapeInterval.String(),
			"scrape_timeout": scrapeInterval.String(), "evaluation_interval": "1s"},
		"rule_files":     []string{"alerts.yml"},
		"scrape_configs": []any{map[string]any{"job_name": "tempool", "static_configs": targets}},
	})
	require.NoError(t, err)
	dir, address := t.TempDir(), ownAddress(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), config, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "alerts.yml"), waits.ReplaceAll(rules, []byte("$1 1s")), 0o600))
	server := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path",
		filepath.Join(dir, "data"),
		"--web.listen-address", address, "--log.level", "warn")
	server.Stdout, server.Stderr = t.Output(), t.Output()
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		_ = server.Wait()
	})
	p := &prometheus{t: t, url: "http://" + address}
	require.Eventually(t, func() bool { return p.get("/-/ready", nil) == nil }, waitTimeout, 50*time.Millisecond,
		"Prometheus does not answer")
	return p
}

// get reads an answer of the server's API into data.
func (p *prometheus) get(path string, data any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), waitTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("the server answered %s to %s", response.Status, path)
	case data == nil:
		return nil
	}
	return json.NewDecoder(response.Body).Decode(&struct{ Data any }{data})
}

// has reports whether a query finds anything.
func (p *prometheus) has(query string) bool {
	p.t.Helper()
	var data struct{ Result []any }
	require.NoError(p.t, p.get("/api/v1/query?query="+url.QueryEscape(query), &data))
	return len(data.Result) > 0
}

// alert is a rule whose condition holds.
type alert struct {
	State               string
	Labels, Annotations map[string]string
}

// alerts returns the alerts that are pending or firing.
func (p *prometheus) alerts() []alert {
	p.t.Helper()
	var data struct{ Alerts []alert }
	require.NoError(p.t, p.get("/api/v1/alerts", &data))
	return data.Alerts
}

// firing returns the alert of a rule that fires about this pool or instance; nil if none does.
func (p *prometheus) firing(name, about string) *alert {
	p.t.Helper()
	for _, a := range p.alerts() {
		subject := a.Labels["pool"] + a.Labels["store"]
		if subject == "" {
			subject = a.Labels["instance"]
		}
		if a.State == "firing" && a.Labels["alertname"] == name && subject == about {
			return &a
		}
	}
	return nil
}

// ruleNames are the names of the alerts that the server has loaded.
func (p *prometheus) ruleNames() (names []string) {
	p.t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	require.NoError(p.t, p.get("/api/v1/rules", &data))
	for _, group := range data.Groups {
		for _, rule := range group.Rules {
			require.NotEqual(p.t, "err", rule.Health, "%s: %s", rule.Name, rule.LastError)
			names = append(names, rule.Name)
		}
	}
	return names
}
