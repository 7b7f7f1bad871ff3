package cli

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// sessionGateway answers like a gateway with one session, mine, in version 3.
func sessionGateway(t *testing.T) string {
	return startGateway(t, "tcp", func(w http.ResponseWriter, r *http.Request) {
		refuse := func(status int, code string) {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"code":%q,"detail":"a sentence","started":false}`, code)
		}
		switch {
		case r.URL.Query().Get("pool") != "python":
			refuse(http.StatusNotFound, "pool_not_found")
		case r.URL.Path == "/v1/sessions":
			_, _ = io.WriteString(
				w, `{"sessions":[{"id":"mine","version":3,"last_accessed":"2026-03-04T11:59:00Z","ttl":"1h","bytes":2048}],`+
					`"next":"mine"}`)
		case r.URL.Path != "/v1/sessions/mine":
			refuse(http.StatusNotFound, "session_not_found")
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		default:
			_, _ = io.WriteString(
				w, `{"id":"mine","programs":{},"data":{"age":36,"name":"Ada"},"metadata":{"by":"me"},"version":3,"ttl":"1h"}`)
		}
	})
}

func TestSessionsAreListedReadAndDeleted(t *testing.T) {
	endpoint := sessionGateway(t)
	sessions := func(args ...string) result {
		return succeed(t, nil, append(append([]string{"sessions"}, args...), "--gateway", endpoint)...)
	}
	const shown = "mine, version 3, expires 1h after its last use\nPART      KEY   VALUE\ndata      age   36\ndata      " +
		"name  \"Ada\"\nmetadata  by    \"me\"\n"

	r := sessions("get", "python", "mine")
	require.Equal(t, shown, r.out)
	r = sessions("list", "python", "--limit", "1")
	require.Regexp(t, `(?s)^SESSION +VERSION +SIZE +IDLE +TTL\nmine +3 +2\.0 KiB .* 1h\nmore sessions: --after mine\n$`,
		r.out)
	r = sessions("rm", "python", "mine")
	require.Equal(t, "deleted session mine\n", r.out)
}

func TestSessionFailuresHaveTheGatewaysCode(t *testing.T) {
	endpoint := sessionGateway(t)
	for want, args := range map[string][]string{
		"session_not_found": {"get", "python", "nobodys"},
		"pool_not_found":    {"rm", "other", "mine"},
	} {
		r := fail(t, nil, append(append([]string{"sessions"}, args...), "--gateway", endpoint, "-o", "json")...)
		require.Equal(t, want, failure(t, r).Code)
		require.Empty(t, r.out)
	}
}

func TestBindingsAreListed(t *testing.T) {
	var requests []string
	endpoint := startGateway(t, "tcp", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		requests = append(requests, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		_, _ = io.WriteString(w, `{"bindings":[{"session":"mine","worker":"python/3"}],"next":"mine"}`)
	})
	run := func(args ...string) result {
		requests = nil
		return ctl(t, nil, append(append([]string{"sessions"}, args...), "--gateway", endpoint)...)
	}
	r := run("bindings", "python", "--limit", "1", "--after", "a")
	requireCode(t, ExitOK, r)
	require.Equal(t, "SESSION  WORKER\nmine     python/3\nmore bindings: --after mine\n", r.out)
	require.Equal(t, []string{"GET /v1/pools/python/bindings?after=a&limit=1 "}, requests)

	requireCode(t, ExitUsage, run("bindings", "python", "--limit", "1001"))
	require.Empty(t, requests)
}
