package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
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
	seen    string // by the last look
	failure error  // of the last attempt; nil if it read them
}

// look reads files again that have changed since the last look, or that could not be read then, and reports whether it
// has. It logs a new failure, after which the last version of the files stays in force.
func (w *watchedFiles) look(logger *slog.Logger) bool {
	now := ""
	for _, name := range w.names {
		now += name + "\n"
		if file, err := os.Stat(name); err == nil { // else it cannot be read
			now += fmt.Sprintln(file.ModTime().UnixNano(), file.Size(), file.Sys().(*syscall.Stat_t).Ino)
		}
	}
	changed, before := now != w.seen, w.failure
	if !changed && before == nil {
		return false
	}
	w.seen, w.failure = now, w.reload()
	if w.failure != nil && (changed || w.failure.Error() != before.Error()) {
		logger.Error("cannot reload a gateway file; keeping its previous contents in effect", "error", w.failure)
	}
	return w.failure == nil
}

// watchFiles reads changed files again until ctx ends.
func watchFiles(ctx context.Context, all []*watchedFiles, logger *slog.Logger) {
	for _, w := range all {
		w.look(logger) // they may have changed since they were first read
	}
	for range sleep.Ticks(ctx.Done(), reloadInterval) {
		for _, w := range all {
			if w.look(logger) {
				logger.Info("reloaded changed gateway files", "files", w.names)
			}
		}
	}
}
