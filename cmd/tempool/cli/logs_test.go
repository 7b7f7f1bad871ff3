package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestLogsPrintsTheLinesOfAPoolAndOfOneWorker(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	p := &fakePool{name: "python", logs: []api.LogLine{
		{Worker: "python/0", Host: "a", Incarnation: 3, At: at, Stream: "stderr", Text: "out of \x1b[31mluck", Seq: 9},
		{Worker: "python/1", Host: "b", Incarnation: 1, At: at, Stream: "tempool", Text: "ended: exited with code 1", Seq: 4},
	}}
	r := succeed(t, newFakeControlPlane(p), "logs", "python", "--since", "10m", "-n", "50")
	require.Equal(t, "2026-01-02T03:04:05.006Z python/0 #3 stderr: out of \x1b[31mluck\n2026-01-02T03:04:05.006Z "+
		"python/1 #1 tempool: ended: exited with code 1\n", r.out)
	require.Contains(t, r.err, "no logs from the gateway at http://gone:7460: connection refused")
	require.Equal(t, 50, p.logOptions.Tail)
	require.Nil(t, p.logOptions.Worker)
	require.Equal(t, noon.Add(-10*time.Minute), p.logOptions.Since)

	p.logs = p.logs[:1]
	r = succeed(t, newFakeControlPlane(p), "logs", "python/0", "--previous", "-n", "-1")
	require.Equal(t, "2026-01-02T03:04:05.006Z #3 stderr: out of \x1b[31mluck\n", r.out)
	require.Equal(t, 0, *p.logOptions.Worker)
	require.True(t, p.logOptions.Previous)
	require.Equal(t, -1, p.logOptions.Tail)

	r = succeed(t, newFakeControlPlane(p), "logs", "python/0", "-o", "json")
	require.JSONEq(
		t, `{"worker":"python/0","host":"a","incarnation":3,"at":"2026-01-02T03:04:05.006Z","stream":"stderr",`+
			`"text":"out of \u001b[31mluck","seq":9}`, r.out)
	fail(t, newFakeControlPlane(), "logs", "python")

	p.logs = nil
	r = fail(t, newFakeControlPlane(p), "logs", "python/0")
	require.Contains(t, r.err, "tempool: connection refused\n", "the gateway that does not answer may have the lines")
}
