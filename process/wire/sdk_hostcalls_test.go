package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// conversation is one vector of hostcalls.json: what a handler does, what the worker then asks of its host, in order,
// and how it ends.
type conversation struct {
	Name string `json:"name"`
	Do   []any  `json:"do"`
	Host []struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  *RemoteError    `json:"error"`
	} `json:"host"`
	Gives json.RawMessage `json:"gives"`
	Fails string          `json:"fails"`
}

func TestEverySDKMakesTheHostCallsOfTheVectors(t *testing.T) {
	all := vectors[conversation](t, "hostcalls.json")
	for name, file := range map[string]string{"python": "tests/performer.py", "node": "test/performer.mjs", "go": ""} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var now conversation // guarded by mu
			step := 0            // guarded by mu
			c, _ := performer(t, name, file).start(t,
				Options{HostCall: func(_ context.Context, method string, headers map[string]string, params []byte) ([]byte, error) {
					mu.Lock()
					defer mu.Unlock()
					if step == len(now.Host) {
						return nil, fmt.Errorf("%s was not to be asked", method)
					}
					want := now.Host[step]
					step++
					if method != want.Method || headers["tempool-session"] != "s1" || !sameJSON(params, want.Params) {
						return nil, fmt.Errorf("asked %s %s for %v, not %s %s", method, params, headers, want.Method, want.Params)
					}
					if want.Error != nil {
						return nil, want.Error
					}
					return want.Result, nil
				}}, "SUITE=perform")
			for _, v := range all {
				mu.Lock()
				now, step = v, 0
				mu.Unlock()
				params, err := json.Marshal(v.Do)
				require.NoError(t, err)
				resp, err := c.Call(within(t),
					Request{Method: "perform", Payload: params, Headers: map[string]string{"tempool-session": "s1"}})
				if v.Fails != "" {
					var failure *RemoteError
					require.ErrorAs(t, err, &failure, v.Name)
					require.Equal(t, v.Fails, failure.Code, v.Name)
				} else {
					require.NoError(t, err, v.Name)
					require.JSONEq(t, string(v.Gives), string(resp.Payload), v.Name)
				}
				mu.Lock()
				require.Equal(t, len(v.Host), step, v.Name)
				mu.Unlock()
			}
		})
	}
}

// performer is the worker that the tests of an SDK do the vectors with.
func performer(t *testing.T, name, file string) sdk {
	if name == "go" {
		return sdk{name: "go"}
	}
	path := filepath.Join(sdkDir(t, name), filepath.FromSlash(file))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	if name == "python" {
		return sdk{name, []string{"python3", "-c"}, string(text)}
	}
	return sdk{name, []string{"node", "--input-type=module", "-e"}, strings.ReplaceAll(string(text), "'../lib", "'%s/lib")}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	if len(bytes.TrimSpace(a)) > 0 && json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	left, leftErr := json.Marshal(x)
	right, rightErr := json.Marshal(y)
	return leftErr == nil && rightErr == nil && bytes.Equal(left, right)
}

func TestEverySDKHasTheHooksOfAMigration(t *testing.T) {
	for _, s := range []sdk{
		{"python", []string{"python3", "-c"}, `
import tempool
@tempool.on_session_release
def release(id): tempool.context().session["cached"] = id
@tempool.on_session_load
def load(id): return tempool.context().session["cached"]
tempool.run()
`},
		{"node", []string{"node", "--input-type=module", "-e"}, `
import { context, onSessionLoad, onSessionRelease, run } from '%s/lib/index.js'
onSessionRelease((id) => context().session.set('cached', id))
onSessionLoad(() => context().session.get('cached'))
run()
`},
		{"go", nil, ""},
	} {
		t.Run(s.name, func(t *testing.T) {
			asked := make(chan string, 10)
			c, _ := s.start(t, Options{HostCall: func(_ context.Context, method string, headers map[string]string,
				params []byte) ([]byte, error) {
				asked <- headers["tempool-session"] + " " + method + " " + strings.ReplaceAll(string(params), " ", "")
				return []byte(`{"data":{"cached":"s7"},"version":1}`), nil
			}}, "SUITE=hooks")
			hello, said := HelloOf(c)
			require.True(t, said)
			require.Equal(t, []string{"session.load", "session.release"}, hello.Methods)
			for _, hook := range []string{"session.release", "session.load"} {
				_, err := c.Call(within(t), Request{Method: hook, Payload: []byte(`["s7"]`),
					Headers: map[string]string{"tempool-session": "s7"}})
				require.NoError(t, err)
			}
			require.Equal(t, `s7 session.update {"patch":{"data":{"cached":"s7"}}}`, await(t, asked))
			require.Equal(t, "s7 session.get ", await(t, asked))
			require.Empty(t, asked)
		})
	}
}
