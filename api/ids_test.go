package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPoolNames(t *testing.T) {
	for _, name := range []string{"a", "0", "hosts", "a-b_c9", "z--", strings.Repeat("a", maxPoolName)} {
		require.True(t, ValidPoolName(name), "%q", name)
	}
	for _, name := range []string{"", "host", "-a", "_a", "A", "aB", "a.b", "a/b", "a b", "a\n", "ä", "a\x00", "a{", "a`",
		"a:", strings.Repeat("a", maxPoolName+1)} {
		require.False(t, ValidPoolName(name), "%q", name)
	}
}

func TestLeaseIDs(t *testing.T) {
	for id, ref := range map[string]LeaseRef{
		"hello.0.1.2":                            {"hello", 0, 1, 2},
		"a-b_c.10.9223372036854775807.123456789": {"a-b_c", 10, 9223372036854775807, 123456789},
	} {
		got, err := ParseLeaseID(id)
		require.NoError(t, err)
		require.Equal(t, ref, got)
		require.Equal(t, id, LeaseID(ref.Pool, ref.Slot, ref.Incarnation, ref.Seq))
	}
	for _, id := range []string{
		"", ".", "...", "hello", "hello.0", "hello.0.1", "hello.0.1.", "hello.0.1.2.", "hello.0.1.2.3", ".0.1.2",
		"Hello.0.1.2", "host.0.1.2",
		"hello.-1.1.2", "hello.0.0.2", "hello.0.1.0", "hello.0.1.9223372036854775808", "hello.x.1.2", "hello.0.1.2~token",
		"hello.0 .1.2", "hello.00.1.2", "hello.-0.1.2", "hello.0.01.2", "hello.0.1.+2",
	} {
		_, err := ParseLeaseID(id)
		require.ErrorIs(t, err, ErrLeaseNotFound, "%q", id)
	}
}
