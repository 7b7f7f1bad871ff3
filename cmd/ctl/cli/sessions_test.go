package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// sessionGateway answers like a gateway with one session, mine, in version 3, and records the requests.
func sessionGateway(t *testing.T, requests *[]string) string {
	return startGateway(t, "tcp", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		*requests = append(*requests, r.Method+" "+r.URL.Path+" "+r.Header.Get("If-Match")+r.Header.Get("If-None-Match")+" "+string(body))
		refuse := func(status int, code string) {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"code":%q,"detail":"a sentence","started":false}`, code)
		}
		match := r.Header.Get("If-Match")
		switch {
		case r.URL.Query().Get("pool") != "python":
			refuse(http.StatusNotFound, "pool_not_found")
		case r.URL.Path == "/v1/sessions" && r.Method == http.MethodPost:
			_, _ = io.WriteString(w, `{"id":"temp_x","programs":{},"data":{},"metadata":{},"version":1,"ttl":"5m"}`)
		case r.URL.Path == "/v1/sessions":
			_, _ = io.WriteString(w, `{"sessions":[{"id":"mine","version":3,"last_accessed":"2026-03-04T11:59:00Z","ttl":"1h","bytes":2048}],"next":"mine"}`)
		case r.URL.Path != "/v1/sessions/mine" && r.Method != http.MethodPut:
			refuse(http.StatusNotFound, "session_not_found")
		case match != "" && match != `"3"`:
			refuse(http.StatusPreconditionFailed, "version_conflict")
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		default:
			_, _ = io.WriteString(w, `{"id":"mine","programs":{},"data":{"age":36,"name":"Ada"},"metadata":{"by":"me"},"version":3,"ttl":"1h"}`)
		}
	})
}

func TestSessionsAreListedReadChangedAndDeleted(t *testing.T) {
	var requests []string
	endpoint := sessionGateway(t, &requests)
	sessions := func(args ...string) result {
		return runCtl(t, append(append([]string{"sessions"}, args...), "--gateway", endpoint)...)
	}
	const shown = "mine, version 3, expires 1h after its last use\nPART      KEY   VALUE\ndata      age   36\ndata      name  \"Ada\"\nmetadata  by    \"me\"\n"

	r := sessions("get", "python", "mine")
	requireCode(t, ExitOK, r)
	require.Equal(t, shown, r.out)
	r = sessions("list", "python", "--limit", "1")
	requireCode(t, ExitOK, r)
	require.Regexp(t, `(?s)^SESSION +VERSION +SIZE +IDLE +TTL\nmine +3 +2\.0 KiB .* 1h\nmore sessions: --after mine\n$`, r.out)
	r = sessions("rm", "python", "mine")
	requireCode(t, ExitOK, r)
	require.Equal(t, "deleted session mine\n", r.out)

	requests = nil
	requireCode(t, ExitOK, sessions("set", "python", "mine", `name="Ada"`, "old=null", "--if-version", "3"))
	require.Equal(t, []string{`PATCH /v1/sessions/mine "3" {"data":{"name":"Ada","old":null}}`}, requests)

	whole := filepath.Join(t.TempDir(), "mine.json")
	require.NoError(t, os.WriteFile(whole, []byte(sessions("get", "python", "mine", "-o", "json").out), 0o600))
	requests = nil
	r = sessions("set", "python", "mine", "-f", whole)
	requireCode(t, ExitOK, r)
	require.Equal(t, shown, r.out)
	require.Len(t, requests, 1)
	require.Contains(t, requests[0], `PUT /v1/sessions/mine  {`)
	require.Contains(t, requests[0], `"version":3`, "what was read replaces its own version only")
}

func TestSessionsNewPrintsTheIDOfAnAnonymousSession(t *testing.T) {
	var requests []string
	endpoint := sessionGateway(t, &requests)
	r := runCtl(t, "sessions", "new", "python", "a=1", "--ttl", "10m", "--gateway", endpoint)
	requireCode(t, ExitOK, r)
	require.Equal(t, "temp_x\n", r.out)
	require.Equal(t, []string{`POST /v1/sessions  {"programs":null,"data":{"a":1},"metadata":null,"ttl":"10m"}`}, requests)
	requireCode(t, ExitUsage, runCtl(t, "sessions", "new", "python", "a", "--gateway", endpoint))
	requireCode(t, ExitUsage, runCtl(t, "sessions", "new", "python", "--ttl", "-1s", "--gateway", endpoint))
	requireCode(t, ExitUsage, runCtl(t, "sessions", "new"))
}

func TestSessionsSetCreatesAMissingSession(t *testing.T) {
	var requests []string
	endpoint := sessionGateway(t, &requests)
	requireCode(t, ExitOK, runCtl(t, "sessions", "set", "python", "new", "a=1", "b=null", "--gateway", endpoint))
	require.Equal(t, []string{
		`PATCH /v1/sessions/new  {"data":{"a":1,"b":null}}`,
		`PUT /v1/sessions/new * {"programs":null,"data":{"a":1},"metadata":null}`,
	}, requests)

	r := runCtl(t, "sessions", "set", "python", "new", "a=1", "--if-version", "1", "--gateway", endpoint, "-o", "json")
	requireCode(t, ExitFailed, r)
	require.Equal(t, "session_not_found", failure(t, r).Code)
}

func TestSessionFailuresHaveTheGatewaysCode(t *testing.T) {
	var requests []string
	endpoint := sessionGateway(t, &requests)
	for want, args := range map[string][]string{
		"session_not_found": {"get", "python", "nobodys"},
		"version_conflict":  {"set", "python", "mine", "a=1", "--if-version", "2"},
		"pool_not_found":    {"rm", "other", "mine"},
		"invalid":           {"set", "python", "mine", "-f", "nowhere.json"},
	} {
		r := runCtl(t, append(append([]string{"sessions"}, args...), "--gateway", endpoint, "-o", "json")...)
		requireCode(t, ExitFailed, r)
		require.Equal(t, want, failure(t, r).Code)
		require.Empty(t, r.out)
	}
}
