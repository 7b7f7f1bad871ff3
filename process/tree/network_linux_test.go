package tree

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestInterfacesAreParsedExceptLoopback(t *testing.T) {
	require.Equal(t, map[string]api.NetworkBytes{"eth0": network(123, 456), "veth12@if3": network(1, 2)},
		parseInterfaces([]byte(
			`Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:      77       1    0    0    0     0          0         0       77       1    0    0    0     0       0          0
  eth0:     123       3    0    0    0     0          0         0      456       4    0    0    0     0       0          0
veth12@if3:   1       1    0    0    0     0          0         0        2       1    0    0    0     0       0          0
 short:       1       1
`)))
	require.Empty(t, parseInterfaces(nil))
}

func TestTheNetworkOfThisProgramIsNotThatOfATree(t *testing.T) {
	self, err := ReadEntry(os.Getpid())
	require.NoError(t, err)
	require.NotZero(t, ownNetwork())
	require.Nil(t, interfacesOf([]*Entry{self}, Key{Root: self.Identity}))
	require.Nil(t, interfacesOf([]*Entry{self}, Key{Root: self.Identity, OfEngine: true}))
}
