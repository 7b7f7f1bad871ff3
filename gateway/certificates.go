package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

// certificates are the server's certificate and the authorities of its clients' certificates.
type certificates struct {
	security Security
	current  atomic.Pointer[tls.Config]
	client   atomic.Pointer[tls.Config] // of requests to other gateways
}

// openCertificates reads the files of s. It returns nil if s has no certificate.
func openCertificates(s Security) (*certificates, error) {
	if s.CertFile == "" && s.KeyFile == "" {
		if s.ClientCAFile != "" {
			return nil, api.Errorf(api.CodeInvalid,
				"--client-ca needs the server's own certificate; set --tls-cert and --tls-key")
		}
		return nil, nil
	}
	if s.CertFile == "" || s.KeyFile == "" {
		return nil, api.Errorf(api.CodeInvalid, "--tls-cert and --tls-key belong together; set both")
	}
	c := &certificates{security: s}
	return c, c.Reload()
}

// Reload reads the files again, for new connections. After an error nothing changes.
func (c *certificates) Reload() error {
	s := c.security
	certificate, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "cannot load --tls-cert %s and --tls-key %s: %w", s.CertFile, s.KeyFile, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"}}
	if s.ClientCAFile != "" {
		pem, err := os.ReadFile(s.ClientCAFile)
		if err != nil {
			return api.Errorf(api.CodeInvalid, "cannot read --client-ca: %w", err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return api.Errorf(api.CodeInvalid, "--client-ca %s contains no PEM certificate", s.ClientCAFile)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	toPeers := &tls.Config{Certificates: config.Certificates, MinVersion: tls.VersionTLS12, NextProtos: config.NextProtos}
	if toPeers.RootCAs, err = x509.SystemCertPool(); err != nil {
		toPeers.RootCAs = x509.NewCertPool()
	}
	for _, name := range []string{s.CertFile, s.ClientCAFile} { // hosts may share a self-signed certificate
		if text, err := os.ReadFile(name); name != "" && err == nil {
			toPeers.RootCAs.AppendCertsFromPEM(text)
		}
	}
	c.current.Store(config)
	c.client.Store(toPeers)
	return nil
}

// toPeers returns the TLS configuration for requests to other gateways; nil without a certificate of its own.
func (c *certificates) toPeers() func() *tls.Config {
	if c == nil {
		return nil
	}
	return c.client.Load
}

// config is the TLS configuration of a listener; each connection uses the files as last read.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
	}
}

// reloadInterval is how often the gateway looks for changed files.
const reloadInterval = time.Second

// watchedFiles are files that are read again when one of them changes, and while they cannot be read: the mode of a
// file, which may be why, is no part of what is compared.
type watchedFiles struct {
	names   []string // "" for none
	reload  func() error
	read    []os.FileInfo // of the files as they were last read; nil for a missing one
	failure string        // of the last attempt; "" after a change
}

// changed reports whether a file has changed since the last call.
func (w *watchedFiles) changed() bool {
	changed := false
	for i, name := range w.names {
		now, _ := os.Stat(name) // nil for a file that cannot be read
		if !isSame(now, w.read[i]) {
			w.read[i], w.failure, changed = now, "", true
		}
	}
	return changed
}

func isSame(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && os.SameFile(a, b)
}

// readAgain logs a new failure, after which the last version of the files stays in force.
func (w *watchedFiles) readAgain(logger *slog.Logger) bool {
	before := w.failure
	w.failure = ""
	if err := w.reload(); err != nil {
		if w.failure = err.Error(); w.failure != before {
			logger.Error("cannot reload a gateway file; keeping its previous contents in effect", "error", err)
		}
	}
	return w.failure == ""
}

// watchFiles reads changed files again until ctx ends.
func watchFiles(ctx context.Context, all []*watchedFiles, logger *slog.Logger) {
	for _, w := range all {
		w.read = make([]os.FileInfo, len(w.names))
		w.changed()
		w.readAgain(logger) // it may have changed since it was first read
	}
	for range sleep.Ticks(ctx.Done(), reloadInterval) {
		for _, w := range all {
			if (w.changed() || w.failure != "") && w.readAgain(logger) {
				logger.Info("reloaded changed gateway files", "files", w.names)
			}
		}
	}
}
