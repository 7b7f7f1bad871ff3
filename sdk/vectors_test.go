package sdk_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
)

// ask is a host call of a vector, and what the vector has it answered with.
type ask struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct{ Code string }
}

type vector struct {
	Name string            `json:"name"`
	Do   []json.RawMessage `json:"do"`
	Host []ask             `json:"host"`
}

func vectors(t *testing.T) []vector {
	t.Helper()
	text, err := os.ReadFile("vectors/hostcalls.json")
	require.NoError(t, err)
	var all []vector
	require.NoError(t, json.Unmarshal(text, &all))
	require.NotEmpty(t, all)
	return all
}

func TestTheSessionStoreUnderstandsWhatTheSDKsAsk(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			store := embedded.InMemory(sessions.Config{})
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			calls := sessions.HostCalls{Store: store, TTL: time.Hour, AnonymousTTL: time.Minute}
			for _, asked := range v.Host {
				if string(asked.Params) == "null" {
					asked.Params = nil
				}
				require.True(t, sessions.Serves(asked.Method), asked.Method)
				_, err := calls.Serve(t.Context(), "s1", asked.Method, asked.Params)
				// The store is empty here, so versions and programs may be others than the vector's.
				if code := api.CodeOf(err); code != api.CodeVersionConflict && code != api.CodeProgramNotFound &&
					code != api.CodeSessionNotFound {
					require.NoError(t, err)
				}
			}
		})
	}
}

func TestThePatchesOfTheSDKsHaveTheIntendedEffect(t *testing.T) {
	tried := 0
	for _, v := range vectors(t) {
		var verb, key string
		require.NoError(t, json.Unmarshal(v.Do[0], &verb))
		if verb != "data.set" || len(v.Host) != 2 {
			continue
		}
		tried++
		require.NoError(t, json.Unmarshal(v.Do[1], &key))
		var s sessions.Session
		require.NoError(t, json.Unmarshal(v.Host[0].Result, &s))
		var update struct{ Patch json.RawMessage }
		require.NoError(t, json.Unmarshal(v.Host[1].Params, &update))
		require.NoError(t, s.Patch(update.Patch))
		require.JSONEq(t, string(v.Do[2]), string(s.Data[key]), v.Name)
	}
	require.GreaterOrEqual(t, tried, 3)
}
