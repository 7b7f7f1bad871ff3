package process

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/wire"
)

func TestCollectGarbageReachesAFramesWorker(t *testing.T) {
	p := begin(t, open(t), python(t, `
import gc, weakref
gc.disable()
kept = []
class Thing: pass

@tempool.method
def litter():
    thing = Thing()
    thing.itself = thing
    kept.append(weakref.ref(thing))

@tempool.method
def alive(): return sum(r() is not None for r in kept)
`))
	call(t, p, "litter", "null")
	require.Equal(t, "1", call(t, p, "alive", "null"))
	require.NoError(t, p.CollectGarbage(t.Context()))
	require.Equal(t, "0", call(t, p, "alive", "null"))
	require.Empty(t, p.Logs(), "the SDK knows the notification")
}

func TestCollectGarbageWaitsForTheCallInFlight(t *testing.T) {
	p := begin(t, open(t), python(t, `
@tempool.method
def hang_audibly(): print("I hang"); time.sleep(1000)
`))
	busy, done := context.WithCancel(t.Context())
	ended := background(func() error {
		return errorOf(p.Conn().Call(busy, wire.Request{Method: "hang_audibly", Payload: []byte("null")}))
	})
	// A call counts as in flight before it is on its way, and what is sent then may overtake it.
	eventually(t, func() bool { return len(p.Logs()) > 0 }, "the worker must have begun the call")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.CollectGarbage(ctx), context.DeadlineExceeded)
	done()
	require.Error(t, await(t, ended))
}

func TestCollectGarbageNeedsProtocolFrames(t *testing.T) {
	p := begin(t, open(t), sh("exec sleep 1000"))
	require.ErrorIs(t, p.CollectGarbage(t.Context()), &Error{Code: CodeInvalid})
}
