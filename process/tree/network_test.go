package tree

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func network(received, sent int64) api.NetworkBytes {
	return api.NetworkBytes{ReceivedBytes: received, SentBytes: sent}
}

func TestTheNetworkOfATreeAddsUpItsInterfaces(t *testing.T) {
	var n networkTotal
	eth0, tap0, other := networkInterface{1, "eth0"}, networkInterface{1, "tap0"}, networkInterface{2, "eth0"}
	add := func(now map[networkInterface]api.NetworkBytes) api.NetworkBytes {
		t.Helper()
		total := n.add(now)
		require.NotNil(t, total)
		return *total
	}
	require.Nil(t, n.add(nil), "not known is not zero")
	require.Equal(t, api.NetworkBytes{}, add(map[networkInterface]api.NetworkBytes{eth0: {}}), "zero is known")
	require.Equal(t, network(10, 20), add(map[networkInterface]api.NetworkBytes{eth0: network(10, 20)}))
	require.Equal(t, network(15, 25),
		add(map[networkInterface]api.NetworkBytes{eth0: network(10, 20), tap0: network(5, 5)}))
	require.Equal(t, network(16, 27), add(map[networkInterface]api.NetworkBytes{eth0: network(11, 22)}),
		"what an interface counted before it was removed still counts")
	require.Equal(t, network(17, 27), add(map[networkInterface]api.NetworkBytes{tap0: network(6, 5)}),
		"and only once when it is read again")
	require.Equal(t, network(20, 31), add(map[networkInterface]api.NetworkBytes{tap0: network(3, 4)}),
		"a counter that has fallen began anew")
	require.Equal(t, network(120, 131), add(map[networkInterface]api.NetworkBytes{other: network(100, 100)}),
		"the same name in another namespace is another interface")
	require.Equal(t, network(120, 131), add(nil), "a reading that fails leaves what is known")
}

func TestTheInterfacesThatATreeHadAreForgottenAtABound(t *testing.T) {
	var n networkTotal
	for namespace := range uint64(10 * maxInterfaces) {
		n.add(map[networkInterface]api.NetworkBytes{{namespace, "eth0"}: network(1, 2)})
	}
	require.LessOrEqual(t, len(n.latest), 2*maxInterfaces+1)
	require.Equal(t, network(10*maxInterfaces, 20*maxInterfaces), n.total)
}
