// Package codec encrypts what Temporal stores: inputs, results, signals, queries, heartbeats and errors.
package codec

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"github.com/tempool/tempool/api"
)

// KeySize is the size of a key in bytes; the cipher is AES-256.
const KeySize = 32

// Metadata of an encrypted payload. The names are those that Temporal's samples use.
const (
	encoding      = "binary/encrypted"
	metadataKeyID = "encryption-key-id"
)

// aesGCM encrypts payloads, metadata included, with AES-256-GCM under a random nonce.
type aesGCM struct {
	current string // the key that encrypts
	ciphers map[string]cipher.AEAD
}

// NewAESGCM returns a codec that encrypts with the first key and decrypts with any of them. A payload that is not
// encrypted is decoded as it is, so that a namespace may begin to encrypt. CodeInvalid means that there is no key, or
// one of another size than KeySize.
func NewAESGCM(keys ...[]byte) (converter.PayloadCodec, error) {
	c := &aesGCM{ciphers: make(map[string]cipher.AEAD)}
	for i, key := range keys {
		if len(key) != KeySize {
			return nil, api.Errorf(api.CodeInvalid, "key %d has %d bytes; a key has %d", i+1, len(key), KeySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		id := keyID(key)
		if i == 0 {
			c.current = id
		}
		c.ciphers[id] = aead
	}
	if len(c.ciphers) == 0 {
		return nil, api.Errorf(api.CodeInvalid, "there is no key")
	}
	return c, nil
}

// keyID names a key without revealing anything about it.
func keyID(key []byte) string {
	sum := sha256.Sum256(append([]byte("tempool payload key\n"), key...))
	return hex.EncodeToString(sum[:8])
}

// Encode encrypts payloads.
func (c *aesGCM) Encode(payloads []*common.Payload) ([]*common.Payload, error) {
	encoded := make([]*common.Payload, len(payloads))
	for i, p := range payloads {
		plain, err := proto.Marshal(p)
		if err != nil {
			return nil, err
		}
		encoded[i] = &common.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding), metadataKeyID: []byte(c.current)},
			Data:     c.ciphers[c.current].Seal(nil, nil, plain, nil),
		}
	}
	return encoded, nil
}

// Decode decrypts payloads. It fails with CodeInvalid if it does not have the key, or the content was changed.
func (c *aesGCM) Decode(payloads []*common.Payload) ([]*common.Payload, error) {
	decoded := make([]*common.Payload, len(payloads))
	for i, p := range payloads {
		if string(p.GetMetadata()[converter.MetadataEncoding]) != encoding {
			decoded[i] = p
			continue
		}
		id := string(p.GetMetadata()[metadataKeyID])
		aead, known := c.ciphers[id]
		if !known {
			return nil, api.Errorf(api.CodeInvalid,
				"the payload is encrypted with key %q, which the payload key file does not contain; add that key", id)
		}
		plain, err := aead.Open(nil, nil, p.GetData(), nil)
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "cannot decrypt a payload of key %q: %w", id, err)
		}
		decoded[i] = &common.Payload{}
		if err := proto.Unmarshal(plain, decoded[i]); err != nil {
			return nil, api.Errorf(api.CodeInvalid, "the decrypted bytes are not a Temporal payload: %w", err)
		}
	}
	return decoded, nil
}
