// Package loopback decides whether an address belongs to this machine alone. The client and the gateway must agree on
// that answer: it decides where secrets may travel in clear text.
package loopback

import (
	"net"
	"net/netip"
	"strings"
)

// Host reports whether a host, without its port, is localhost or a loopback IP address. It resolves no names.
func Host(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// Address is Host for HOST:PORT; an address of any other form is false.
func Address(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && Host(host)
}
