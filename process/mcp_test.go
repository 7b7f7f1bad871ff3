package process

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// eraServer is an MCP server whose answer to server/discover is its second argument, none if that is empty; it exits if
// that is "exit". It writes what it reads to the file that its first argument names. With a third argument its first
// process reads nothing before it has been sent two requests.
const eraServer = `
import array, fcntl, json, os, sys, termios, time
log = open(sys.argv[1], "a")
late = sys.argv[3:] and log.tell() == 0
log.write("start\n"); log.flush()
unread = array.array("i", [0])
one = 0
while late and (one == 0 or unread[0] == one):
    one = unread[0]
    fcntl.ioctl(0, termios.FIONREAD, unread)
    time.sleep(0.01)
for line in sys.stdin:
    log.write(line); log.flush()
    message = json.loads(line)
    if "id" not in message or message["method"] == "tools/call": continue
    answer = sys.argv[2] if message["method"] == "server/discover" else '"result": {}'
    if answer == "exit": sys.exit(1)
    if answer: print('{"jsonrpc": "2.0", "id": %d, %s}' % (message["id"], answer), flush=True)
`

// A process that serves nobody is asked once for each spec. What is sent to a modern server has _meta.
func TestTheEraOfAnMCPServer(t *testing.T) {
	for name, c := range map[string]struct{ answer, era string }{
		"modern":           {`"result": {"supportedVersions": ["2026-07-28"]}`, spec.EraModern},
		"a later revision": {`"error": {"code": -32022, "message": "no"}`, spec.EraModern},
		"no such method":   {`"error": {"code": -32601, "message": "no"}`, spec.EraLegacy},
		"no versions":      {`"result": {}`, spec.EraLegacy},
		"exit":             {"exit", spec.EraLegacy},
		"silence":          {"", spec.EraLegacy},
		"a late start":     {`"result": {"supportedVersions": ["2026-07-28"]}`, spec.EraModern},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "log")
			read := func() string { return textOf(t, file) }
			sp := runs("python3", "-c", eraServer, file, c.answer)
			if name == "a late start" {
				sp.Pool.Command = append(sp.Pool.Command, "late")
			}
			sp.Pool.Protocol, sp.Pool.MaxInflight, sp.MCP.Mode = spec.ProtocolJSONRPC, 2, spec.MCPShared
			sp.Call.CancelGrace = spec.Duration(100 * time.Millisecond)
			s := open(t)
			if name == "a later revision" { // which we cannot speak, either
				require.ErrorContains(t, errorOf(s.Start(t.Context(), launch("p/0", 1, sp))), "server/discover of the MCP server")
				return
			}
			var starts sync.WaitGroup
			for i, worker := range []string{"p/0", "p/1"} {
				starts.Go(func() {
					p, err := s.Start(t.Context(), Launch{Worker: worker, Incarnation: 1, Spec: sp})
					if err == nil && i == 0 {
						_ = p.Conn().Ping(t.Context())
						ctx, cancel := context.WithCancel(t.Context())
						go func() {
							defer cancel()
							eventually(t, func() bool { return strings.Contains(read(), "tools/call") }, "no call")
						}()
						_, _ = p.Conn().Call(ctx, wire.Request{Method: "tools/call", Payload: []byte(`{"_meta":{}}`)})
					}
				})
			}
			starts.Wait()
			all := s.List()
			require.Len(t, all, 2, "the process that was asked is gone")
			require.Equal(t, c.era, all[0].Era())
			require.NotNil(t, all[0].Greeting())
			eventually(t, func() bool { return strings.Contains(read(), "notifications/cancelled") }, "no cancel")
			require.Equal(t, 3, strings.Count(read(), "start\n"), read())
			for line := range strings.Lines(read()) {
				if c.era == spec.EraModern && line != "start\n" {
					require.Contains(t, line, `"_meta"`)
					require.NotContains(t, line, `"ping"`)
				}
			}
		})
	}
}
