// Package accesstest makes tokens and certificates for tests.
package accesstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/gateway/access"
)

// AddToken adds a token to a file and returns its secret.
func AddToken(t testing.TB, path, name string, pools []string, rights ...string) (secret string) {
	t.Helper()
	secret, hash := access.NewSecret()
	require.NoError(t, access.Add(path, access.Token{Name: name, SHA256: hash, Pools: pools, Rights: rights}))
	return secret
}

// Certify writes a certificate for servers and clients at these addresses, which is its own authority, and returns its
// files and the configuration of who trusts it.
func Certify(t testing.TB, dir string, addresses ...string) (certFile, keyFile string, trust *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	write := func(name, kind string, der []byte) (path string, text []byte) {
		path, text = filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path, text
	}
	certFile, text := write("cert.pem", "CERTIFICATE", public)
	keyFile, _ = write("key.pem", "PRIVATE KEY", private)
	trust = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	require.True(t, trust.RootCAs.AppendCertsFromPEM(text))
	return certFile, keyFile, trust
}
