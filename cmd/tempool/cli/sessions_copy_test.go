package cli

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Over TCP the agent names its socket.
func TestSessionsCopyFollowsTheAgentsSocketAndWaits(t *testing.T) {
	const begin = `POST /v1/admin/sessions/copy?pool=python {"from":"embedded","to":"redis://there"}`
	const two, step = `"host":"here","from":"embedded","to":"redis://there"`, "POST /v1/admin/sessions/copy/step "
	socket, asked := answering(t, "unix", map[string]string{
		begin: `200 {"phase":"copying",` + two + `,"in_sync":false,"pending":0,"comparing":{"sessions":10,"compared":4,` +
			`"missing":3}}`,
		"GET /v1/admin/sessions/copy": `200 {"phase":"in_sync",` + two + `,"in_sync":true,"pending":0,` +
			`"compared":{"sessions":10,"compared":10}}`,
		step + `{"step":"back","force":true}`: `200 {"phase":"cut_over",` + two + `,"in_sync":true,"pending":1,"lost":2}`,
		step + `{"step":"cancel"}`:            `200 {"phase":"none","host":"here","problem":"some pools were not checked"}`,
		step + `{"step":"finish"}`:            refusal(400, "invalid", "cut-over first"),
	})
	endpoint := startGateway(t, "tcp", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"code":"forbidden","detail":"ask over the socket","started":false,"endpoint":%q}`, socket)
	})
	r := succeed(t, nil, "sessions", "copy", "python", "--from", "embedded", "--to", "redis://there", "--gateway",
		endpoint)
	require.Equal(t, "the primary store is embedded; every change is also written to redis://there\nboth stores are in "+
		"sync; 0 sessions pending\n"+
		"last comparison: 10 sessions; 0 missing, 0 different, 0 extra\nnext: --cut-over, or --cancel\n", r.out)
	require.Equal(t, []string{begin, "GET /v1/admin/sessions/copy"}, *asked)

	*asked = nil
	r = succeed(t, nil, "sessions", "copy", "python", "--back", "--force", "--gateway", endpoint)
	require.Equal(t, []string{step + `{"step":"back","force":true}`}, *asked)
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
