package wire

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheUnusedSocketIsNotPolled(t *testing.T) {
	c, f := newForked(t)
	require.NoError(t, f.ours.SetReadDeadline(time.Time{}), "it is read until the hello")
	send(t, f.pipe, workerHello)
	require.NoError(t, AwaitReady(within(t), c))
	require.Eventually(t, func() bool {
		return errors.Is(f.ours.SetReadDeadline(time.Time{}), net.ErrClosed)
	}, waitTimeout, time.Millisecond, "the descriptor that was read, and polled, is closed")
	serves(t, c, f, f.pipe)
}
