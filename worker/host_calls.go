package worker

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

// sessionHeader names the session of a call, as the gateway sent it.
const sessionHeader = "tempool-session"

// hostCalls answers what subprocesses ask of their host.
type hostCalls struct {
	stores *stores
	// find returns a process of this host.
	find func(worker string, incarnation int64) (*process.Process, bool)

	mu sync.Mutex
	// temporary are the sessions of calls in flight that name none, by the context of the call.
	temporary map[context.Context]string
	deletions sync.WaitGroup
}

func newHostCalls(s *stores) *hostCalls {
	return &hostCalls{stores: s, temporary: make(map[context.Context]string)}
}

// serve is process.Config.HostCall.
func (h *hostCalls) serve(ctx context.Context, call process.HostCall) ([]byte, error) {
	if !sessions.Serves(call.Method) {
		return nil, &protocol.RemoteError{Code: protocol.CodeUnsupported, Message: "this host does not answer " + call.Method}
	}
	result, err := h.session(ctx, call)
	var coded *api.Error
	if errors.As(err, &coded) {
		return nil, &protocol.RemoteError{Code: string(coded.Code), Message: coded.Message}
	}
	return result, err
}

func (h *hostCalls) session(ctx context.Context, call process.HostCall) ([]byte, error) {
	inCall := protocol.CallContext(ctx)
	if inCall == nil {
		return nil, &protocol.RemoteError{Code: protocol.CodeNotInCall, Message: "a session belongs to a call: ask for it while one is served"}
	}
	pool := poolOf(call.Worker)
	if p, found := h.find(call.Worker, call.Incarnation); found {
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
	if id, err = h.temporarySession(inCall, calls.Store); err != nil {
		return nil, err
	}
	result, err := calls.Serve(ctx, id, call.Method, call.Payload)
	if inCall.Err() != nil { // the call ended meanwhile, and with it its session, which may have been made again
		h.deleteTemporary(id, calls.Store)
	}
	return result, err
}

// temporarySession names the session of a call that names none, and has it deleted when the call ends.
func (h *hostCalls) temporarySession(call context.Context, store sessions.Store) (string, error) {
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

// deleteTimeout bounds the deletion of a temporary session. What is not deleted expires.
const deleteTimeout = 5 * time.Second

func (h *hostCalls) deleteTemporary(id string, store sessions.Store) {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	if err := store.Delete(ctx, id); err != nil && !errors.Is(err, api.ErrSessionNotFound) {
		h.stores.log.Warn("a temporary session was not deleted; it expires", "session", id, "error", err)
	}
}

// waitClosed returns when the sessions of all ended calls are deleted. No call may be in flight.
func (h *hostCalls) wait() { h.deletions.Wait() }
