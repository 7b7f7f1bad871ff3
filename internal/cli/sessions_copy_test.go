package cli

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// copyingGateway answers as an agent does that copies sessions: the first look finds the copy under way, later ones find it done. Over TCP it sends
// the operator to its socket.
func copyingGateway(t *testing.T, asked *[]string) (overTCP string) {
	looks := 0
	socket := startGateway(t, "unix", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		*asked = append(*asked, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		const two = `"host":"here","from":"embedded","to":"redis://there"`
		switch {
		case r.Method == http.MethodPost && string(body) == `{"step":"finish"}`:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"code":"invalid","detail":"cut-over first","started":false}`)
		case r.Method == http.MethodPost && r.URL.Path == "/v1/admin/sessions/copy/step":
			_, _ = io.WriteString(w, `{"phase":"cut_over",`+two+`,"in_step":true,"pending":1,"lost":2}`)
		case looks == 0:
			looks++
			_, _ = io.WriteString(w, `{"phase":"copying",`+two+`,"in_step":false,"pending":0,"comparing":{"sessions":10,"compared":4,"missing":3}}`)
		default:
			_, _ = io.WriteString(w, `{"phase":"in_step",`+two+`,"in_step":true,"pending":0,"compared":{"sessions":10,"compared":10}}`)
		}
	})
	return startGateway(t, "tcp", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"code":"forbidden","detail":"ask over the socket","started":false,"endpoint":%q}`, socket)
	})
}

func TestACopyIsBegunAndWaitedForOverTheAgentsSocket(t *testing.T) {
	var asked []string
	at := copyingGateway(t, &asked)
	r := runCtl(t, "sessions", "copy", "python", "--from", "embedded", "--to", "redis://there", "--gateway", at)
	requireCode(t, ExitOK, r)
	require.Equal(t, "the primary store is embedded; every change is also written to redis://there\nboth stores are in sync; 0 sessions pending\n"+
		"last comparison: 10 sessions; 0 missing, 0 different, 0 extra\nnext: --cut-over, or --cancel\n", r.out)
	require.Equal(t, `POST /v1/admin/sessions/copy?pool=python {"from":"embedded","to":"redis://there"}`, asked[0])
	require.Equal(t, `GET /v1/admin/sessions/copy `, asked[1])

	asked = nil
	r = runCtl(t, "sessions", "copy", "python", "--back", "--force", "--gateway", at)
	requireCode(t, ExitOK, r)
	require.Equal(t, []string{`POST /v1/admin/sessions/copy/step {"step":"back","force":true}`}, asked)
	require.Contains(t, r.out, "the primary store is redis://there; every change is also written to embedded")
	require.Contains(t, r.out, "the last change of 2 sessions was lost")

	r = runCtl(t, "sessions", "copy", "python", "--finish", "--gateway", at, "-o", "json")
	requireCode(t, ExitFailed, r)
	require.Equal(t, "invalid", failure(t, r).Code)
}

func TestACopyIsAskedForOneThingAtATime(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--from", "embedded"}, {"--to", "redis://there"}, {"--status", "--cut-over"}, {"--from", "embedded", "--to", "redis://there", "--back"},
		{"--cut-over", "--force"}, {"--status", "--replace"},
	} {
		r := runCtl(t, append([]string{"sessions", "copy", "python"}, args...)...)
		requireCode(t, ExitUsage, r)
	}
	requireCode(t, ExitUsage, runCtl(t, "sessions", "copy", "--status"))
}
