package gateway

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/statuses"
	"github.com/tempool/tempool/internal/lint/docs"
)

// describedRoutes are those of the API's description, which TestOpenAPIDescribesExactlyTheRoutes compares with the
// code; {} is a variable.
func describedRoutes(t *testing.T) map[string]bool {
	t.Helper()
	routes := map[string]bool{}
	for path, operations := range readDocument(t).Paths {
		for method := range operations {
			routes[strings.ToUpper(method)+" "+withoutNames(path)] = true
		}
	}
	return routes
}

func withoutNames(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, "{}")
}

// routesIn returns the routes in the code of a text, such as `GET/PUT /v1/sessions/{id}`; a path alone continues the
// methods before it.
func routesIn(text string) (routes []string) {
	methods := ""
	for _, found := range regexp.MustCompile("`(?:([A-Z]+(?:/[A-Z]+)*) )?(/[^` ]*)`").FindAllStringSubmatch(text, -1) {
		if found[1] != "" {
			methods = found[1]
		}
		for method := range strings.SplitSeq(methods, "/") {
			routes = append(routes, method+" "+withoutNames(found[2]))
		}
	}
	return routes
}

func TestTheManualListsExactlyTheRoutes(t *testing.T) {
	t.Parallel()
	want := describedRoutes(t)
	want["GET /ui"] = true // the dashboard, which is no part of the API
	listed := map[string]bool{}
	for _, cell := range docs.FirstColumn(t, docs.Read(t, "docs/gateway.md"), "| route | does |") {
		for _, route := range routesIn(cell) {
			listed[route] = true
		}
	}
	require.Equal(t, want, listed)

	sessions := docs.Read(t, "docs/sessions.md")
	for route := range want {
		if strings.Contains(route, "/v1/sessions") {
			require.Contains(t, routesIn(sessions), route, "docs/sessions.md")
		}
	}
	for _, name := range []string{"docs/sessions.md", "docs/events.md", "docs/security.md", "docs/scale.md",
		"docs/operations/monitor.md"} {
		for _, route := range regexp.MustCompile("`((?:GET|PUT|POST|PATCH|DELETE) /[^`]*)`").FindAllStringSubmatch(
			docs.Read(t, name), -1) {
			for _, route := range routesIn("`" + strings.ReplaceAll(route[1], "/pools/POOL", "/pools/{pool}") + "`") {
				require.Contains(t, want, route, "%s names %s", name, route)
			}
		}
	}
}

func TestTheManualListsExactlyTheErrorCodes(t *testing.T) {
	t.Parallel()
	listed := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| ((?:`[a-z_]+`(?:, )?)+) \\| (\\d+) \\| ")
	for _, found := range row.FindAllStringSubmatch(docs.Read(t, "docs/gateway.md")+docs.Read(t, "docs/sessions.md"), -1) {
		for _, code := range regexp.MustCompile("[a-z_]+").FindAllString(found[1], -1) {
			if status := listed[code]; status != "" {
				require.Equal(t, status, found[2], "two rows give %s different statuses", code)
			}
			listed[code] = found[2]
		}
	}
	want := map[string]string{string(codeInternal): fmt.Sprint(http.StatusInternalServerError)}
	for code, status := range statuses.Of {
		want[string(code)] = fmt.Sprint(status)
	}
	require.Equal(t, want, listed)
}

func TestTheManualDescribesTheHeaders(t *testing.T) {
	t.Parallel()
	text := docs.Read(t, "docs/gateway.md")
	headers := []string{api.HeaderSession, api.HeaderKey, api.HeaderTimeout, api.HeaderPriority, api.HeaderLeaseToken,
		api.HeaderWorker, api.HeaderIncarnation}
	for _, header := range headers {
		require.Contains(t, text, "`"+header+"`")
	}
	for _, name := range regexp.MustCompile(`\bTempool-[A-Z][A-Za-z-]+`).FindAllString(text, -1) {
		require.Contains(t, headers, name)
	}
}
