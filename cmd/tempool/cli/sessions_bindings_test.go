package cli

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

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
		return runCtl(t, append(append([]string{"sessions"}, args...), "--gateway", endpoint)...)
	}
	r := run("bindings", "python", "--limit", "1", "--after", "a")
	requireCode(t, ExitOK, r)
	require.Equal(t, "SESSION  WORKER\nmine     python/3\nmore bindings: --after mine\n", r.out)
	require.Equal(t, []string{"GET /v1/pools/python/bindings?after=a&limit=1 "}, requests)

	requireCode(t, ExitUsage, run("bindings", "python", "--limit", "1001"))
	require.Empty(t, requests)
}
