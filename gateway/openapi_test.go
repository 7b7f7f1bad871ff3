package gateway

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/gateway/statuses"
	"github.com/tempool/tempool/sessions"
)

type document struct {
	Paths      map[string]map[string]operation
	Components struct {
		Schemas map[string]struct {
			Properties map[string]struct{ Enum []string }
		}
	}
}

type operation struct {
	OperationID string
	Parameters  []struct {
		Ref  string `json:"$ref"`
		Name string
	}
}

func readDocument(t *testing.T) document { return decode[document](t, openAPI) }

func TestOpenAPIDescribesExactlyTheRoutes(t *testing.T) {
	e := parallel(t, 0)
	served, described := []string{"GET /metrics"}, []string(nil) // that one is the agent's, on its gateway
	for _, r := range e.gateway.routes() {
		served = append(served, r.method+" "+strings.ReplaceAll(r.path, "...}", "}"))
	}
	ids := map[string]bool{}
	for path, operations := range readDocument(t).Paths {
		for method, o := range operations {
			described = append(described, strings.ToUpper(method)+" "+path)
			require.False(t, ids[o.OperationID], o.OperationID)
			ids[o.OperationID] = true
			named := map[string]bool{}
			for _, p := range o.Parameters {
				named[p.Name] = true
				named[strings.TrimSuffix(strings.ToLower(strings.TrimPrefix(p.Ref, "#/components/parameters/")), "id")] = true
			}
			for _, variable := range regexp.MustCompile(`{(\w+)}`).FindAllStringSubmatch(path, -1) {
				require.True(t, named[strings.Replace(variable[1], "id", "lease", 1)], "%s does not describe %s", path, variable[1])
			}
		}
	}
	require.ElementsMatch(t, served, described)
	a := e.ok("GET", "/openapi.json", nil)
	require.Equal(t, string(openAPI), string(a.body))
}

func TestOpenAPIReferencesResolve(t *testing.T) {
	t.Parallel()
	described := decode[struct{ Components map[string]map[string]any }](t, openAPI).Components
	for _, ref := range regexp.MustCompile(`"\$ref": "#/components/(\w+)/(\w+)"`).FindAllStringSubmatch(string(openAPI),
		-1) {
		require.Contains(t, described[ref[1]], ref[2], ref[0])
	}
}

func TestOpenAPIDescribesTheFieldsAndCodes(t *testing.T) {
	t.Parallel()
	schemas := readDocument(t).Components.Schemas
	for name, value := range map[string]any{"Lease": api.Lease{}, "CheckoutRequest": pool.CheckoutRequest{},
		"Problem": Problem{}, "Readiness": api.Readiness{}, "Session": sessions.Session{}, "Event": api.Event{},
		"SessionBinding": api.SessionBinding{}, "SessionBindings": api.SessionBindings{},
		"SessionBackup": api.SessionBackup{}, "SessionBackupEnd": api.SessionBackupEnd{},
		"SessionImport": api.SessionImport{},
		"LogLine":       api.LogLine{}, "RecentSamples": api.RecentSamples{}, "RecentQueue": api.RecentQueue{},
		"Figures": api.Figures{}, "MethodFigures": api.MethodFigures{},
		"SessionCopyRequest": api.SessionCopyRequest{}, "SessionCopyStep": api.SessionCopyStep{},
		"KeyUse": api.KeyUse{}, "ReleaseResult": api.ReleaseResult{},
		"SessionCopy": api.SessionCopy{}, "SessionComparison": api.SessionComparison{}} {
		var fields []string
		for field := range reflect.TypeOf(value).Fields() {
			if key, _, _ := strings.Cut(field.Tag.Get("json"), ","); field.IsExported() && key != "-" {
				fields = append(fields, key)
			}
		}
		require.ElementsMatch(t, fields, slices.Collect(maps.Keys(schemas[name].Properties)), name)
	}
	var codes []string
	for code := range statuses.Of {
		codes = append(codes, string(code))
	}
	require.ElementsMatch(t, append(codes, string(codeInternal)), schemas["Problem"].Properties["code"].Enum)
	require.ElementsMatch(t, api.EventTypes(), schemas["Event"].Properties["type"].Enum)
}
