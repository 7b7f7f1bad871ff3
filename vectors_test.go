package tempool

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// vector is one of sdk/vectors/client.json, which all clients pass.
type vector struct {
	Name, Do string
	Answers  []struct {
		Status    int
		Headers   map[string]string
		Body      *string
		Pieces    []string
		PiecesHex []string `json:"pieces_hex"`
		Cut       bool
	}
	Requests  int
	Header    string // X-Name of the call
	Gives     json.RawMessage
	GrantedMS int64 `json:"granted_ms"`
	RenewedMS int64 `json:"renewed_ms"`
	Fails     *struct {
		Code         Code
		Started      bool
		RetryAfterMS int64           `json:"retry_after_ms"`
		WorkerCode   string          `json:"worker_code"`
		Type         string          `json:"type"`
		Traceback    string          `json:"traceback"`
		Data         json.RawMessage `json:"data"`
		Fatal        bool            `json:"fatal"`
	}
}

func (v vector) serve(t *testing.T, asked *atomic.Int64) (endpoint string) {
	return serving(t, func(w http.ResponseWriter, r *http.Request) {
		n := int(asked.Add(1))
		if n > len(v.Answers) || r.Header.Get("X-Name") != v.Header {
			http.Error(w, "one request too many", http.StatusInternalServerError)
			return
		}
		answer := v.Answers[n-1]
		for key, value := range answer.Headers {
			w.Header().Set(key, value)
		}
		w.WriteHeader(answer.Status)
		if answer.Body != nil {
			_, _ = w.Write([]byte(*answer.Body))
		}
		for _, piece := range answer.Pieces {
			_, _ = w.Write([]byte(piece))
			_ = http.NewResponseController(w).Flush()
		}
		for _, piece := range answer.PiecesHex {
			bytes, _ := hex.DecodeString(piece)
			_, _ = w.Write(bytes)
			_ = http.NewResponseController(w).Flush()
		}
		if answer.Cut {
			panic(http.ErrAbortHandler)
		}
	})
}

// do carries the vector out and returns what it gave.
func (v vector) do(t *testing.T, pool *Pool) (json.RawMessage, error) {
	switch v.Do {
	case "call":
		var out json.RawMessage
		if string(v.Gives) == "null" {
			return nil, pool.Call(t.Context(), "square", map[string]int{"x": 12}, nil)
		}
		err := pool.Call(t.Context(), "square", map[string]int{"x": 12}, &out)
		return out, err
	case "exchange":
		var name string
		o := CallOptions{Header: http.Header{"X-Name": {v.Header}}}
		o.Answered = func(a Answer) { name = a.Header.Get("X-Name") }
		_, err := pool.With(o).CallRaw(t.Context(), "square", nil)
		gave, _ := json.Marshal(name)
		return gave, err
	case "stream":
		var text strings.Builder
		var failure error
		for piece, err := range pool.Stream(t.Context(), "count", nil) {
			text.Write(piece)
			failure = err
		}
		return json.RawMessage(text.String()), failure
	}
	near := func(lease *Lease, ms int64) {
		left := time.Until(lease.Expires())
		require.LessOrEqual(t, left, time.Duration(ms)*time.Millisecond)
		require.Greater(t, left, time.Duration(ms)*time.Millisecond-time.Minute)
	}
	lease, err := pool.Checkout(t.Context(), CheckoutOptions{Holder: "h", NoRenew: true, Wait: testTimeout})
	require.NoError(t, err)
	near(lease, v.GrantedMS)
	if err = lease.Renew(t.Context()); err == nil {
		near(lease, v.RenewedMS)
	}
	return nil, err
}

func TestVectors(t *testing.T) {
	text, err := os.ReadFile("sdk/vectors/client.json")
	require.NoError(t, err)
	var vectors []vector
	require.NoError(t, json.Unmarshal(text, &vectors))
	require.Greater(t, len(vectors), 20)
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			var asked atomic.Int64
			endpoint := v.serve(t, &asked)
			// under two addresses, because this client repeats a call at another gateway only
			client := dialed(t,
				Options{Gateways: []string{endpoint, strings.Replace(endpoint, "127.0.0.1", "[::ffff:127.0.0.1]", 1)}})
			gave, err := v.do(t, client.Pool("p"))
			require.EqualValues(t, v.Requests, asked.Load())
			if v.Do == "stream" && v.Answers[0].PiecesHex == nil {
				require.Equal(t, strings.Join(v.Answers[0].Pieces, ""), string(gave), "also before a failure")
			}
			if v.Fails == nil {
				require.NoError(t, err)
				if v.Do != "stream" && v.Do != "lease" && string(v.Gives) != "null" {
					require.JSONEq(t, string(v.Gives), string(gave))
				}
				return
			}
			var failure *Error
			require.ErrorAs(t, err, &failure)
			code := v.Fails.Code
			if v.Answers[0].Cut {
				code = api.CodeUnavailable // this client does not say which ended, worker or gateway
			}
			require.Equal(t, code, failure.Code)
			require.Equal(t, v.Fails.Started, failure.Started)
			require.EqualValues(t, v.Fails.RetryAfterMS, failure.RetryAfter.Milliseconds())
			worker, is := errors.AsType[*WorkerError](err)
			require.Equal(t, v.Fails.WorkerCode != "", is)
			if is {
				require.NotEmpty(t, worker.Message)
				require.ErrorContains(t, err, worker.Message)
				require.Contains(t, *v.Answers[0].Body, worker.Message)
				require.Equal(t, v.Fails.WorkerCode, worker.Code)
				if v.Fails.Type != "" {
					require.Equal(t, []any{v.Fails.Type, v.Fails.Traceback, v.Fails.Fatal},
						[]any{worker.Type, worker.Traceback, worker.Fatal})
					require.JSONEq(t, string(v.Fails.Data), string(worker.Data))
				}
			}
		})
	}
}
