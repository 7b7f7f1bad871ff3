package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	protocol "github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/sessions"
)

// sessionHeader is the header of a call that names its session.
const sessionHeader = "tempool-session"

// Calls answers the host calls of subprocesses.
type Calls struct {
	stores *Stores
	// Find returns a process of this host.
	Find func(worker string, incarnation int64) (*process.Process, bool)

	mu sync.Mutex
	// temporary holds the session IDs of calls in flight that name no session, by the context of the call.
	temporary map[context.Context]string
	deletions sync.WaitGroup
}

// NewCalls makes the host calls about sessions in these stores.
func NewCalls(s *Stores) *Calls {
	return &Calls{stores: s, temporary: make(map[context.Context]string)}
}

// Serve implements process.Config.HostCall.
func (h *Calls) Serve(ctx context.Context, call process.HostCall) ([]byte, error) {
	if !sessions.Serves(call.Method) {
		return nil, &protocol.RemoteError{Code: protocol.CodeUnsupported, Message: "unknown host call " + call.Method}
	}
	result, err := h.session(ctx, call)
	if coded, ok := errors.AsType[*api.Error](err); ok {
		return nil, &protocol.RemoteError{Code: string(coded.Code), Message: coded.Message}
	}
	return result, err
}

func (h *Calls) session(ctx context.Context, call process.HostCall) ([]byte, error) {
	callCtx := protocol.CallContext(ctx)
	if callCtx == nil {
		return nil, &protocol.RemoteError{Code: protocol.CodeNotInCall,
			Message: "no call in progress: sessions can only be used while serving a call"}
	}
	pool := api.PoolOf(call.Worker)
	if p, found := h.Find(call.Worker, call.Incarnation); found {
		h.stores.mu.Lock()
		h.stores.learnLocked(pool, p.Spec().Sessions)
		h.stores.mu.Unlock()
	}
	calls, err := h.stores.Of(ctx, pool)
	if err != nil {
		return nil, err
	}
	id := call.Headers[sessionHeader]
	if id != "" {
		return calls.Serve(ctx, id, call.Method, call.Payload)
	}
	if id, err = h.temporarySession(callCtx, calls.Store); err != nil {
		return nil, err
	}
	result, err := calls.Serve(ctx, id, call.Method, call.Payload)
	if callCtx.Err() != nil { // the call ended meanwhile and deleted its session, which Serve may have created again
		h.deleteTemporary(id, calls.Store)
	}
	return result, err
}

// temporarySession returns the session ID of a call that names none. The session is deleted when the call ends.
func (h *Calls) temporarySession(call context.Context, store sessions.Store) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := call.Err(); err != nil {
		return "", err
	}
	if id, known := h.temporary[call]; known {
		return id, nil
	}
	id := sessions.NewTemporaryID()
	h.temporary[call] = id
	h.deletions.Add(1)
	context.AfterFunc(call, func() {
		defer h.deletions.Done()
		h.mu.Lock()
		delete(h.temporary, call)
		h.mu.Unlock()
		h.deleteTemporary(id, store)
	})
	return id, nil
}

// deleteTimeout bounds the deletion of a temporary session.
const deleteTimeout = 5 * time.Second

func (h *Calls) deleteTemporary(id string, store sessions.Store) {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	if err := store.Delete(ctx, id); err != nil && !errors.Is(err, api.ErrSessionNotFound) {
		h.stores.log.Warn("deleting a temporary session failed; it will expire", "session", id, "error", err)
	}
}

// Wait returns when the temporary sessions of all ended calls are deleted. No call may be in flight.
func (h *Calls) Wait() { h.deletions.Wait() }
