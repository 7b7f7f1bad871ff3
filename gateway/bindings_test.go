package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestBindingsAreAskedAndSet(t *testing.T) {
	e := parallel(t, 2)
	const all, path = "/v1/pools/p/bindings", "/v1/pools/p/bindings/user:42"
	require.JSONEq(t, `{"bindings":[],"next":""}`, string(e.do("GET", all, nil).body))
	require.JSONEq(t, `{"session":"user:42"}`, string(e.do("GET", path, nil).body))
	for _, worker := range []string{"p/1", "p/0", "p/1"} {
		e.ok("PUT", path, `{"worker":"`+worker+`"}`)
		require.JSONEq(t, `{"session":"user:42","worker":"`+worker+`"}`, string(e.do("GET", path, nil).body))
	}
	e.ok("PUT", all+"/a", `{"worker":"p/0"}`)
	require.JSONEq(t, `{"bindings":[{"session":"a","worker":"p/0"}],"next":"a"}`,
		string(e.do("GET", all+"?limit=1", nil).body))
	require.JSONEq(t, `{"bindings":[{"session":"user:42","worker":"p/1"}],"next":""}`,
		string(e.do("GET", all+"?limit=1&after=a", nil).body))

	require.Equal(t, http.StatusNoContent, e.do("DELETE", path+"?keep=p/1", nil).status)
	require.Contains(t, string(e.do("GET", path, nil).body), "p/1")
	for range 2 {
		require.Equal(t, http.StatusNoContent, e.do("DELETE", path, nil).status)
	}
	require.JSONEq(t, `{"session":"user:42"}`, string(e.do("GET", path, nil).body))
}

func TestNoSessionIsBoundToAWorkerThatIsBeingEmptied(t *testing.T) {
	e := parallel(t, 2)
	const path = "/v1/pools/p/bindings/"
	e.ok("PUT", path+"old", `{"worker":"p/0"}`)
	e.ok("PUT", path+"other", `{"worker":"p/1"}`)
	e.config.Affinity.Close("p/0", time.Hour)
	e.do("PUT", path+"new", `{"worker":"p/0"}`).requireProblem(t, http.StatusServiceUnavailable, api.CodeDraining)
	e.do("PUT", path+"other", `{"worker":"p/0"}`).requireProblem(t, http.StatusServiceUnavailable, api.CodeDraining)
	require.Equal(t, http.StatusOK, e.do("PUT", path+"old", `{"worker":"p/0"}`).status, "it is bound there already")
	require.JSONEq(t, `{"session":"new"}`, string(e.do("GET", path+"new", nil).body))
	require.JSONEq(t, `{"session":"other","worker":"p/1"}`, string(e.do("GET", path+"other", nil).body))
	e.config.Affinity.Close("p/0", 0)
	e.ok("PUT", path+"new", `{"worker":"p/0"}`)
}

func TestABindingThatCannotBeSet(t *testing.T) {
	e := parallel(t, 1)
	e.joins("https://there:7070")
	const path = "/v1/pools/p/bindings/s"
	e.do("PUT", path, `{"worker":"p/7"}`).requireProblem(t, http.StatusNotFound, api.CodeWorkerNotFound)
	elsewhere := e.do("PUT", path, `{"worker":"p/1"}`)
	elsewhere.requireProblem(t, http.StatusServiceUnavailable, api.CodeNoWorkers)
	require.Contains(t, string(elsewhere.body), "https://there:7070")
	for _, body := range []string{`{"worker":"q/0"}`, `{"worker":"0"}`, `{}`, ``, `{"slot":0}`} {
		e.do("PUT", path, body).requireProblem(t, http.StatusBadRequest, api.CodeInvalid)
	}
	for _, path := range []string{"/v1/pools/p/bindings?limit=0", "/v1/pools/p/bindings?limit=1001",
		"/v1/pools/p/bindings/a%20b", "/v1/pools/p/bindings/" + strings.Repeat("x", 257)} {
		e.do("GET", path, nil).requireProblem(t, http.StatusBadRequest, api.CodeInvalid)
	}
}
