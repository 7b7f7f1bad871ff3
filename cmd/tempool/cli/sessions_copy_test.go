package cli

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// copyingGateway answers like an agent that copies sessions: the copy is running at the first request and done at later
// ones. Over TCP it redirects to its socket.
func copyingGateway(t *testing.T, requests *[]string) (overTCP string) {
	polls := 0
	socket := startGateway(t, "unix", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		*requests = append(*requests, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		const two = `"host":"here","from":"embedded","to":"redis://there"`
		switch {
		case r.Method == http.MethodPost && string(body) == `{"step":"finish"}`:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"code":"invalid","detail":"cut-over first","started":false}`)
		case r.Method == http.MethodPost && string(body) == `{"step":"cancel"}`:
			_, _ = io.WriteString(w, `{"phase":"none","host":"here","problem":"some pools were not checked"}`)
		case r.Method == http.MethodPost && r.URL.Path == "/v1/admin/sessions/copy/step":
			_, _ = io.WriteString(w, `{"phase":"cut_over",`+two+`,"in_sync":true,"pending":1,"lost":2}`)
		case polls == 0:
			polls++
			_, _ = io.WriteString(w, `{"phase":"copying",`+two+
				`,"in_sync":false,"pending":0,"comparing":{"sessions":10,"compared":4,"missing":3}}`)
		default:
			_, _ = io.WriteString(w, `{"phase":"in_sync",`+two+
				`,"in_sync":true,"pending":0,"compared":{"sessions":10,"compared":10}}`)
		}
	})
	return startGateway(t, "tcp", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"code":"forbidden","detail":"ask over the socket","started":false,"endpoint":%q}`, socket)
	})
}

func TestSessionsCopyFollowsTheAgentsSocketAndWaits(t *testing.T) {
	var requests []string
	endpoint := copyingGateway(t, &requests)
	r := succeed(t, nil, "sessions", "copy", "python", "--from", "embedded", "--to", "redis://there", "--gateway",
		endpoint)
	require.Equal(t, "the primary store is embedded; every change is also written to redis://there\nboth stores are in "+
		"sync; 0 sessions pending\n"+
		"last comparison: 10 sessions; 0 missing, 0 different, 0 extra\nnext: --cut-over, or --cancel\n", r.out)
	require.Equal(t, `POST /v1/admin/sessions/copy?pool=python {"from":"embedded","to":"redis://there"}`, requests[0])
	require.Equal(t, `GET /v1/admin/sessions/copy `, requests[1])

	requests = nil
	r = succeed(t, nil, "sessions", "copy", "python", "--back", "--force", "--gateway", endpoint)
	require.Equal(t, []string{`POST /v1/admin/sessions/copy/step {"step":"back","force":true}`}, requests)
	require.Contains(t, r.out, "the primary store is redis://there; every change is also written to embedded")
	require.Contains(t, r.out, "the last change of 2 sessions was lost")

	r = succeed(t, nil, "sessions", "copy", "python", "--cancel", "--gateway", endpoint)
	require.Equal(t, "no copy of sessions is running on host here; some pools were not checked\n", r.out)

	r = fail(t, nil, "sessions", "copy", "python", "--finish", "--gateway", endpoint, "-o", "json")
	require.Equal(t, "invalid", failure(t, r).Code)
}

func TestSessionsCopyTakesOneActionAtATime(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--from", "embedded"}, {"--to", "redis://there"}, {"--status", "--cut-over"},
		{"--from", "embedded", "--to", "redis://there", "--back"},
		{"--cut-over", "--force"}, {"--status", "--replace"},
	} {
		r := ctl(t, nil, append([]string{"sessions", "copy", "python"}, args...)...)
		requireCode(t, ExitUsage, r)
	}
	requireCode(t, ExitUsage, ctl(t, nil, "sessions", "copy", "--status"))
}
