package wire

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func vectors[T any](t testing.TB, name string) []T {
	raw, err := os.ReadFile(filepath.Join(sdkDir(t, "vectors"), name))
	require.NoError(t, err)
	var all []T
	require.NoError(t, json.Unmarshal(raw, &all))
	require.NotEmpty(t, all)
	return all
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

type goodVector struct {
	Name, Hex, Method, Payload string
	Type                       FrameType
	ID                         uint32
	Headers                    map[string]string
	MaxMessage                 int64 `json:"max_message"`
}

func reader(data []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(data)) }

func orDefault(limit int64) int64 { return Options{MaxMessage: limit}.withDefaults().MaxMessage }

type malformedVector struct {
	Name, Hex, Reason string
	MaxMessage        int64 `json:"max_message"`
}

func TestValidVectorsRoundTrip(t *testing.T) {
	for _, v := range vectors[goodVector](t, "frames.json") {
		raw := unhex(t, v.Hex)
		stream := reader(raw)
		got, err := ReadFrame(stream, orDefault(v.MaxMessage))
		require.NoError(t, err, v.Name)
		require.ErrorIs(t, errorOf(ReadFrame(stream, 0)), io.EOF, v.Name)
		want := Frame{Type: v.Type, ID: v.ID, Method: v.Method, Payload: unhex(t, v.Payload)}
		if len(v.Headers) > 0 {
			want.Headers = v.Headers
		}
		require.Equal(t, want, got, v.Name)
		again, err := AppendFrame([]byte("before"), got)
		require.NoError(t, err, v.Name)
		if len(v.Headers) < 2 { // more than one may stand in any order
			require.Equal(t, "before"+string(raw), string(again), v.Name)
		}
		back, err := ReadFrame(reader(again[len("before"):]), DefaultMaxMessage)
		require.NoError(t, err, v.Name)
		require.Equal(t, want, back, v.Name)
	}
}

func TestMalformedVectorsAreRejectedWithAReason(t *testing.T) {
	for _, v := range vectors[malformedVector](t, "malformed.json") {
		_, err := ReadFrame(reader(unhex(t, v.Hex)), orDefault(v.MaxMessage))
		var broken *ProtocolError
		require.ErrorAs(t, err, &broken, v.Name)
		require.Contains(t, broken.Reason, v.Reason, v.Name)
	}
}

func TestAppendFrameRejectsInvalidFrames(t *testing.T) {
	long := make([]byte, MaxMethod+1)
	for _, f := range []Frame{
		{Type: FrameRequest, ID: 1, Method: string(long)},
		{Type: FrameResponse, ID: 1, Headers: map[string]string{"": "v"}},
		{Type: FrameResponse, ID: 1, Headers: map[string]string{"k": string(make([]byte, MaxHeaders))}},
		{Type: FrameResponse, ID: 1, Headers: map[string]string{"k": string(make([]byte, MaxHeaders-5))}, Method: ""},
	} {
		dst, err := AppendFrame([]byte("kept"), f)
		if len(f.Headers["k"]) == MaxHeaders-5 {
			require.NoError(t, err, "the largest header that fits: lengths, key and value")
			continue
		}
		require.Error(t, err)
		require.Equal(t, "kept", string(dst))
	}
}
