package tempool

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
)

func TestAnAddressWithoutAPortIsExplained(t *testing.T) {
	refused := errors.New("no children to pick from")
	err := dialError(t.Context(), "temporal", refused)
	require.ErrorContains(t, err, "write the address as HOST:PORT")
	require.ErrorIs(t, err, refused)
	require.Equal(t, refused, dialError(t.Context(), "127.0.0.1:7233", refused))
	require.Equal(t, refused, dialError(t.Context(), "dns:///temporal:7233", refused))
}

func TestAnErrorOfACodecServerHidesTheSecretsOfItsURL(t *testing.T) {
	_, err := Payloads{KeyFile: "keys", CodecEndpoint: "https://s3cret@codec"}.DataConverter("default")
	require.ErrorContains(t, err, "(https://(hidden)@codec)")
	require.NotContains(t, err.Error(), "s3cret")
	for _, endpoint := range []string{"http://s3cret@127.0.0.1:1", "http://127.0.0.1:1/x?token=s3cret&path="} {
		payloads, err := Payloads{CodecEndpoint: endpoint}.DataConverter("default")
		require.NoError(t, err)
		_, encodeErr := payloads.ToPayload("x")
		decodeErr := payloads.FromPayload(&common.Payload{Metadata: map[string][]byte{"encoding": []byte("json/plain")},
			Data: []byte("1")}, new(int))
		for _, err := range []error{encodeErr, decodeErr} {
			require.ErrorContains(t, err, "127.0.0.1:1")
			require.ErrorContains(t, err, "(hidden)")
			require.NotContains(t, err.Error(), "s3cret")
		}
	}
}

func TestTheEnvironmentStandsForTheFilesThatAreNotGiven(t *testing.T) {
	const folder = "sdk/python/tests/tls/"
	t.Setenv("TEMPOOL_CERT_FILE", folder+"client.pem") // with its key
	var o Options
	require.NoError(t, Credentials{CAFile: folder + "authority.pem"}.Apply(&o))
	require.NotNil(t, o.GatewayTLS.RootCAs)
	require.Len(t, o.GatewayTLS.Certificates, 1)
	require.ErrorIs(t, Credentials{KeyFile: folder + "client.pem"}.Apply(&Options{}), ErrInvalid)
}
