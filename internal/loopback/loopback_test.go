package loopback

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyThisMachinesAddressesAreLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"localhost:7233": true, "LOCALHOST:1": true, "127.0.0.1:7233": true, "127.1.2.3:1": true, "[::1]:7233": true,
		"example.org:7233": false, "10.0.0.1:7233": false, "0.0.0.0:1": false, "localhost": false, "": false,
		"localhost.example.org:1": false,
	} {
		require.Equal(t, want, Address(address), address)
	}
}
