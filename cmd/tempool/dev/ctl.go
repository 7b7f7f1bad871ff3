package dev

import (
	"cmp"
	"net"
	"os"
	"strconv"
	"strings"

	"go.temporal.io/sdk/client"
)

// defaultPort is Temporal's default port.
const defaultPort = 7233

// ctl returns the command line that runs tempool for this server.
func (s *starter) ctl() string {
	var words []string
	if address := s.temporal.Address; !isDefaultAddress(address) && os.Getenv("TEMPORAL_ADDRESS") != address {
		words = append(words, "TEMPORAL_ADDRESS="+address)
	}
	if namespace := s.client.Namespace(); namespace != "default" && os.Getenv("TEMPORAL_NAMESPACE") != namespace {
		words = append(words, "TEMPORAL_NAMESPACE="+namespace)
	}
	return strings.Join(append(words, "tempool"), " ")
}

// isDefaultAddress reports whether address is where programs look for Temporal without settings.
func isDefaultAddress(address string) bool {
	host, port, err := net.SplitHostPort(cmp.Or(address, client.DefaultHostPort))
	return err == nil && port == strconv.Itoa(defaultPort) && (host == "localhost" || host == "127.0.0.1")
}
