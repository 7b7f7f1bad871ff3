package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSessionsAreListedReadAndDeleted(t *testing.T) {
	endpoint, _ := answering(t, "tcp", map[string]string{
		"GET /v1/sessions/mine?pool=python": `200 {"id":"mine","programs":{},"data":{"age":36,"name":"Ada"},` +
			`"metadata":{"by":"me"},"version":3,"ttl":"1h"}`,
		"GET /v1/sessions?after=&limit=1&pool=python": `200 {"sessions":[{"id":"mine","version":3,` +
			`"last_accessed":"2026-03-04T11:59:00Z","ttl":"1h","bytes":2048}],"next":"mine"}`,
		"DELETE /v1/sessions/mine?pool=python": "204 ",
	})
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
	endpoint, _ := answering(t, "tcp", map[string]string{
		"GET /v1/sessions/nobodys?pool=python": refusal(404, "session_not_found", "a sentence"),
		"DELETE /v1/sessions/mine?pool=other":  refusal(404, "pool_not_found", "a sentence"),
	})
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
	endpoint, asked := answering(t, "tcp", map[string]string{"GET /v1/pools/python/bindings?after=a&limit=1": `200 ` +
		`{"bindings":[{"session":"mine","worker":"python/3"}],"next":"mine"}`})
	run := func(args ...string) result {
		*asked = nil
		return ctl(t, nil, append(append([]string{"sessions"}, args...), "--gateway", endpoint)...)
	}
	r := run("bindings", "python", "--limit", "1", "--after", "a")
	requireCode(t, ExitOK, r)
	require.Equal(t, "SESSION  WORKER\nmine     python/3\nmore bindings: --after mine\n", r.out)
	require.Equal(t, []string{"GET /v1/pools/python/bindings?after=a&limit=1"}, *asked)

	requireCode(t, ExitUsage, run("bindings", "python", "--limit", "1001"))
	require.Empty(t, *asked)
}
