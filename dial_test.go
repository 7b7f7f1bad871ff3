package tempool

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnAddressWithoutAPortIsExplained(t *testing.T) {
	refused := errors.New("no children to pick from")
	err := dialError(t.Context(), "temporal", refused)
	require.ErrorContains(t, err, "write the address as HOST:PORT")
	require.ErrorIs(t, err, refused)
	require.Equal(t, refused, dialError(t.Context(), "127.0.0.1:7233", refused))
	require.Equal(t, refused, dialError(t.Context(), "dns:///temporal:7233", refused))
}
