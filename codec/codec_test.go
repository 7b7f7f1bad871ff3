package codec

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"github.com/tempool/tempool/api"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, KeySize) }

func newCodec(t *testing.T, keys ...[]byte) converter.PayloadCodec {
	c, err := NewAESGCM(keys...)
	require.NoError(t, err)
	return c
}

func secret(t *testing.T) *common.Payload {
	p, err := converter.GetDefaultDataConverter().ToPayload("a password")
	require.NoError(t, err)
	return p
}

func encodeOne(t *testing.T, c converter.PayloadCodec, p *common.Payload) *common.Payload {
	encoded, err := c.Encode([]*common.Payload{p})
	require.NoError(t, err)
	require.Len(t, encoded, 1)
	return encoded[0]
}

func TestAPayloadIsReadWithItsKeyOnly(t *testing.T) {
	plain := secret(t)
	encoded := encodeOne(t, newCodec(t, key(1)), plain)
	require.NotContains(t, encoded.String(), "password")
	require.NotContains(t, encoded.String(), "json/plain", "the metadata is encrypted, too")
	require.NotEqual(t, encoded.Data, encodeOne(t, newCodec(t, key(1)), plain).Data,
		"each encryption has a nonce of its own")

	decoded, err := newCodec(t, key(2), key(1)).Decode([]*common.Payload{encoded})
	require.NoError(t, err, "an older key decrypts")
	require.True(t, proto.Equal(plain, decoded[0]))

	_, err = newCodec(t, key(2)).Decode([]*common.Payload{encoded})
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(t, err, "add that key")

	for i := range encoded.Data {
		changed := proto.Clone(encoded).(*common.Payload)
		changed.Data[i] ^= 1
		_, err = newCodec(t, key(1)).Decode([]*common.Payload{changed})
		require.ErrorIs(t, err, api.ErrInvalid, "byte %d was changed", i)
	}
}

func TestAPayloadThatIsNotEncryptedIsReadAsItIs(t *testing.T) {
	plain := secret(t)
	decoded, err := newCodec(t, key(1)).Decode([]*common.Payload{plain})
	require.NoError(t, err)
	require.True(t, proto.Equal(plain, decoded[0]))
}

func TestReadKeys(t *testing.T) {
	one, two := base64.StdEncoding.EncodeToString(key(1)), base64.StdEncoding.EncodeToString(key(2))
	write := func(content string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), "keys")
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
		return path
	}
	keys, err := ReadKeys(write("# of May\n"+two+"\r\n\n  "+one, 0o600))
	require.NoError(t, err)
	require.Equal(t, [][]byte{key(2), key(1)}, keys)
	for name, c := range map[string]struct{ path, want string }{
		"no file":       {filepath.Join(t.TempDir(), "none"), "no such file"},
		"no key":        {write("# nothing\n", 0o600), "has no key"},
		"a short key":   {write(one+"\nc2hvcnQ=\n", 0o600), "line 2 of"},
		"no base64":     {write("?", 0o600), "line 1 of"},
		"readable":      {write(one, 0o640), "chmod 600"},
		"a large file":  {write(strings.Repeat("#", maxKeyFile+1), 0o600), "not a payload key file"},
		"not even text": {write("\x00\xff", 0o600), "line 1 of"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadKeys(c.path)
			require.ErrorIs(t, err, api.ErrInvalid)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "c2hvcnQ", "an error quotes no key")
		})
	}
	_, err = NewAESGCM()
	require.ErrorIs(t, err, api.ErrInvalid)
	_, err = NewAESGCM([]byte("short"))
	require.ErrorIs(t, err, api.ErrInvalid)
}

func TestTheServerDecodesForItsOriginsOnly(t *testing.T) {
	local := newCodec(t, key(1))
	server := httptest.NewServer(Server(local, []string{"http://ui.example"}))
	defer server.Close()
	remote := converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{Endpoint: server.URL})
	plain := secret(t)
	decoded, err := remote.Decode([]*common.Payload{encodeOne(t, local, plain)})
	require.NoError(t, err)
	require.True(t, proto.Equal(plain, decoded[0]))

	ask := func(method, host, origin, body string) *http.Response {
		request, err := http.NewRequest(method, server.URL+"/decode", strings.NewReader(body))
		require.NoError(t, err)
		if host != "" {
			request.Host = host
		}
		request.Header.Set("Origin", origin)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		response.Body.Close()
		return response
	}
	preflight := ask("OPTIONS", "", "http://ui.example", "")
	require.Equal(t, 204, preflight.StatusCode)
	require.Equal(t, "http://ui.example", preflight.Header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, 200, ask("POST", "", "http://ui.example", "{}").StatusCode)
	require.Equal(t, 403, ask("POST", "", "http://evil.example", "{}").StatusCode)
	require.Equal(t, 403, ask("POST", "evil.example", "", "{}").StatusCode, "a name that was bound to loopback")
	require.Equal(t, 400, ask("POST", "", "http://ui.example", strings.Repeat("x", maxServerBody+1)).StatusCode)
}
