package sessions

import (
	"errors"
	"time"

	"github.com/tempool/tempool/api"
)

// ErrClosed is the cause of CodeStoreUnavailable after Close.
var ErrClosed = errors.New("store is closed")

// NotFound is the error for a session that does not exist.
func NotFound(id string) error {
	return api.Errorf(api.CodeSessionNotFound,
		"session %s not found: it was never created, was deleted, or has expired", id)
}

// Exists is Create's error for an id that is in use.
func Exists(id string) error {
	return api.Errorf(api.CodeSessionExists, "session %s already exists: update it, or choose another id", id)
}

// Full is Create's error at the limit of the store.
func Full(max int) error {
	return api.Errorf(api.CodeStoreFull,
		"the session store is full at %d sessions (sessions.max): delete some, shorten their ttl, or raise that limit", max)
}

// Unavailable is the error for a store that does not answer.
func Unavailable(operation string, err error) error {
	return api.Errorf(api.CodeStoreUnavailable, "%s: session store unavailable: %w", operation, err).After(time.Second)
}
