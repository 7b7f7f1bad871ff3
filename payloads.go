package tempool

import (
	"cmp"
	"net/http"
	"os"
	"strings"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/codec"
	"github.com/tempool/tempool/internal/redact"
)

// EnvPayloadKeys is the environment variable for Payloads.KeyFile.
const EnvPayloadKeys = "TEMPOOL_PAYLOAD_KEYS"

// codecTimeout bounds one request to a codec server.
const codecTimeout = 10 * time.Second

// Payloads say how what Temporal stores is encoded: inputs, results, signals, queries, heartbeats and errors. All
// programs that use a namespace, agents, clients and tempool, need the same. Search attributes are never encoded.
type Payloads struct {
	// KeyFile has the keys that encrypt and decrypt, see codec.ReadKeys. Default: TEMPOOL_PAYLOAD_KEYS; "" encrypts
	// nothing.
	KeyFile string
	// CodecEndpoint is the base URL of a codec server, instead of KeyFile. {namespace} in it stands for the namespace.
	// Default: the standard Temporal settings (TEMPORAL_CODEC_ENDPOINT).
	CodecEndpoint string
	// CodecAuth is the Authorization header for the codec server. Default: the standard Temporal settings
	// (TEMPORAL_CODEC_AUTH).
	CodecAuth string
	// Converter converts values to payloads, and does all of the encoding itself. nil: the SDK's, with the codec of the
	// other fields.
	Converter converter.DataConverter
}

// WithDefaults fills what p leaves open from the environment and the profile. A file of keys is taken before a codec
// server.
func (p Payloads) WithDefaults() (Payloads, error) {
	profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{})
	if err != nil {
		return p, api.Errorf(api.CodeInvalid, "invalid Temporal environment or profile settings: %w", err)
	}
	if p.KeyFile == "" && p.CodecEndpoint == "" {
		p.KeyFile = os.Getenv(EnvPayloadKeys)
		if p.KeyFile == "" && profile.Codec != nil {
			p.CodecEndpoint = profile.Codec.Endpoint
		}
	}
	if profile.Codec != nil {
		p.CodecAuth = cmp.Or(p.CodecAuth, profile.Codec.Auth)
	}
	return p, nil
}

// DataConverter converts the payloads of a namespace. It fails with CodeInvalid if the keys cannot be used.
func (p Payloads) DataConverter(namespace string) (converter.DataConverter, error) {
	if p.Converter != nil {
		return p.Converter, nil
	}
	plain := converter.GetDefaultDataConverter()
	payloadCodec, err := p.codec(namespace)
	if err != nil || payloadCodec == nil {
		return plain, err
	}
	return converter.NewCodecDataConverter(plain, payloadCodec), nil
}

// apply sets the converters of Temporal's options.
func (p Payloads) apply(options *client.Options) (err error) {
	if options.DataConverter, err = p.DataConverter(options.Namespace); err != nil {
		return err
	}
	sample, err := options.DataConverter.ToPayload("")
	if err != nil {
		return api.Errorf(api.CodeInvalid, "cannot encode what Temporal stores: %w", err)
	}
	// errors quote inputs, so they must not be more legible
	if string(sample.GetMetadata()[converter.MetadataEncoding]) != converter.MetadataEncodingJSON {
		options.FailureConverter = temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
			DataConverter: options.DataConverter, EncodeCommonAttributes: true,
		})
	}
	return nil
}

// codec is nil if nothing is encoded.
func (p Payloads) codec(namespace string) (converter.PayloadCodec, error) {
	switch {
	case p.KeyFile != "" && p.CodecEndpoint != "":
		return nil, api.Errorf(api.CodeInvalid, "both a payload key file (%s) and a codec server (%s) are set; choose one",
			p.KeyFile, redact.URLs(p.CodecEndpoint))
	case p.KeyFile != "":
		return p.LocalCodec()
	case p.CodecEndpoint != "":
		endpoint := strings.TrimRight(strings.ReplaceAll(p.CodecEndpoint, "{namespace}", namespace), "/")
		return remoteCodec{converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{
			Endpoint: endpoint, Client: http.Client{Timeout: codecTimeout},
			ModifyRequest: func(r *http.Request) error {
				r.Header.Set("X-Namespace", namespace)
				if p.CodecAuth != "" {
					r.Header.Set("Authorization", p.CodecAuth)
				}
				return nil
			},
		})}, nil
	}
	return nil, nil
}

// remoteCodec is a codec server, whose errors name its URL.
type remoteCodec struct{ converter.PayloadCodec }

func (c remoteCodec) Encode(payloads []*common.Payload) ([]*common.Payload, error) {
	encoded, err := c.PayloadCodec.Encode(payloads)
	return encoded, redact.Error(err)
}

func (c remoteCodec) Decode(payloads []*common.Payload) ([]*common.Payload, error) {
	decoded, err := c.PayloadCodec.Decode(payloads)
	return decoded, redact.Error(err)
}

// LocalCodec is the codec of KeyFile, TEMPOOL_PAYLOAD_KEYS by default. It fails with CodeInvalid without one.
func (p Payloads) LocalCodec() (converter.PayloadCodec, error) {
	path := cmp.Or(p.KeyFile, os.Getenv(EnvPayloadKeys))
	if path == "" {
		return nil, api.Errorf(api.CodeInvalid, "no payload key file is set; set --payload-keys or %s", EnvPayloadKeys)
	}
	keys, err := codec.ReadKeys(path)
	if err != nil {
		return nil, err
	}
	return codec.NewAESGCM(keys...)
}
