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
	key, own := newKey(t), newTemplate(addresses...)
	own.IsCA, own.KeyUsage = true, own.KeyUsage|x509.KeyUsageCertSign
	certFile, keyFile = write(t, dir, own, own, key, key)
	return certFile, keyFile, trustIn(t, certFile)
}

// CertifyBy is Certify with an authority of its own, which is in another file.
func CertifyBy(t testing.TB, dir string, addresses ...string) (certFile, keyFile, authorityFile string,
	trust *tls.Config) {
	t.Helper()
	authorityKey, authority := newKey(t), newTemplate()
	authority.IsCA, authority.KeyUsage, authority.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
	authority.Subject.CommonName = "test authority"
	of := filepath.Join(dir, "authority")
	require.NoError(t, os.Mkdir(of, 0o700))
	authorityFile, _ = write(t, of, authority, authority, authorityKey, authorityKey)
	certFile, keyFile = write(t, dir, newTemplate(addresses...), authority, newKey(t), authorityKey)
	return certFile, keyFile, authorityFile, trustIn(t, authorityFile)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func newTemplate(addresses ...string) *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	return template
}

// write signs a certificate and writes it, and its key.
func write(t testing.TB, dir string, template, parent *x509.Certificate,
	key, by *ecdsa.PrivateKey) (cert, private string) {
	t.Helper()
	public, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	cert, private = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: public}, private: {Type: "PRIVATE KEY", Bytes: secret},
	} {
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	}
	return cert, private
}

func trustIn(t testing.TB, authorityFile string) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(authorityFile)
	require.NoError(t, err)
	trust := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	require.True(t, trust.RootCAs.AppendCertsFromPEM(text))
	return trust
}
