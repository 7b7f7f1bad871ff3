package tempool

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"

	"github.com/tempool/tempool/api"
)

// Environment variables of a client's credentials for gateways.
const (
	envToken     = "TEMPOOL_TOKEN"
	envTokenFile = "TEMPOOL_TOKEN_FILE"
	envCAFile    = "TEMPOOL_CA_FILE"
	envCertFile  = "TEMPOOL_CERT_FILE"
	envKeyFile   = "TEMPOOL_KEY_FILE"
)

// Credentials are the files with which a client authenticates to gateways; empty names are none.
type Credentials struct {
	TokenFile string // with the bearer token
	CAFile    string // PEM: the authorities of the gateways' certificates, instead of the system's
	CertFile  string // PEM: the client's certificate
	KeyFile   string // PEM: its private key
}

// Apply reads the files into the options that o leaves empty. The environment names the files of TLS that f
// does not; see Options.GatewayTLS. A file that cannot be used is CodeInvalid.
func (f Credentials) Apply(o *Options) error {
	if f.TokenFile != "" && o.GatewayToken == "" {
		text, err := os.ReadFile(f.TokenFile)
		if err != nil {
			return api.Errorf(api.CodeInvalid, "cannot read the gateway token file: %w; check --token-file and %s", err,
				envTokenFile)
		}
		o.GatewayToken = strings.TrimSpace(string(text))
	}
	f.CAFile = cmp.Or(f.CAFile, os.Getenv(envCAFile))
	if f.CertFile == "" && f.KeyFile == "" {
		f.CertFile, f.KeyFile = os.Getenv(envCertFile), os.Getenv(envKeyFile)
	}
	if o.GatewayTLS != nil || f.CAFile == "" && f.CertFile == "" && f.KeyFile == "" {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CAFile != "" {
		text, err := os.ReadFile(f.CAFile)
		if err != nil {
			return api.Errorf(api.CodeInvalid, "cannot read the CA certificates of the gateways: %w; check --ca-file and %s",
				err, envCAFile)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return api.Errorf(api.CodeInvalid, "%s contains no PEM certificate", f.CAFile)
		}
	}
	if f.CertFile != "" || f.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(f.CertFile, cmp.Or(f.KeyFile, f.CertFile))
		if err != nil {
			return api.Errorf(api.CodeInvalid, "cannot load the client certificate %q and its key %q: %w", f.CertFile, f.KeyFile,
				err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	o.GatewayTLS = config
	return nil
}

// gatewayEnvironment sets the credentials for gateways that o leaves empty, from the environment.
func (o *Options) gatewayEnvironment() error {
	o.GatewayToken = cmp.Or(o.GatewayToken, os.Getenv(envToken))
	return Credentials{TokenFile: os.Getenv(envTokenFile)}.Apply(o)
}
