package tree

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheNetworkOfATreeAddsUpItsInterfaces(t *testing.T) {
	var n networkTotal
	eth0, tap0, other := networkInterface{1, "eth0"}, networkInterface{1, "tap0"}, networkInterface{2, "eth0"}
	add := func(now map[networkInterface]NetworkBytes) NetworkBytes {
		t.Helper()
		total := n.add(now)
		require.NotNil(t, total)
		return *total
	}
	require.Nil(t, n.add(nil), "not known is not zero")
	require.Equal(t, NetworkBytes{}, add(map[networkInterface]NetworkBytes{eth0: {}}), "zero is known")
	require.Equal(t, NetworkBytes{10, 20}, add(map[networkInterface]NetworkBytes{eth0: {10, 20}}))
	require.Equal(t, NetworkBytes{15, 25}, add(map[networkInterface]NetworkBytes{eth0: {10, 20}, tap0: {5, 5}}))
	require.Equal(t, NetworkBytes{16, 27}, add(map[networkInterface]NetworkBytes{eth0: {11, 22}}), "what an interface counted before it was removed still counts")
	require.Equal(t, NetworkBytes{17, 27}, add(map[networkInterface]NetworkBytes{tap0: {6, 5}}), "and only once when it is read again")
	require.Equal(t, NetworkBytes{20, 31}, add(map[networkInterface]NetworkBytes{tap0: {3, 4}}), "a counter that has fallen began anew")
	require.Equal(t, NetworkBytes{120, 131}, add(map[networkInterface]NetworkBytes{other: {100, 100}}), "the same name in another namespace is another interface")
	require.Equal(t, NetworkBytes{120, 131}, add(nil), "a reading that fails leaves what is known")
}

func TestTheInterfacesThatATreeHadAreForgottenAtABound(t *testing.T) {
	var n networkTotal
	for namespace := range uint64(10 * maxInterfaces) {
		n.add(map[networkInterface]NetworkBytes{{namespace, "eth0"}: {1, 2}})
	}
	require.LessOrEqual(t, len(n.latest), 2*maxInterfaces+1)
	require.Equal(t, NetworkBytes{10 * maxInterfaces, 20 * maxInterfaces}, n.total)
}
