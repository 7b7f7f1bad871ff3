package api

import (
	"math"
	"time"

	"github.com/tempool/tempool/lifecycle"
)

// CheckoutRequest asks a worker for a lease. RequestID makes it idempotent: a repeated request returns the same lease.
type CheckoutRequest struct {
	RequestID string `json:"request_id,omitempty"`
	// AttemptID is another one each time that the request is sent. A Withdrawal names it.
	AttemptID string `json:"attempt_id,omitempty"`
	Holder    string `json:"holder"`
	Session   string `json:"session,omitempty"`
	// TTLMS is how long the lease lasts unless renewed, in milliseconds; 0 means the spec's lease.ttl.
	TTLMS int64 `json:"ttl_ms,omitempty"`
	// TokenHash is the HashLeaseToken of the lease's token. Without it only those who may use the Temporal namespace can
	// use the lease, and over HTTP only clients with the right admin.
	TokenHash string `json:"token_hash,omitempty"`
}

// Withdrawal is the payload of SignalWithdrawCheckout.
type Withdrawal struct {
	AttemptID string `json:"attempt_id"`
}

// Bounds of what a caller may put into a lease, in bytes: it is part of the worker's durable state.
const (
	MaxHolderBytes    = 256
	MaxRequestIDBytes = 256
	MaxSessionBytes   = 256
)

// maxTTLMS keeps a TTL in the range of time.Duration. A worker grants at most the lease.max_ttl of its spec.
const maxTTLMS = int64(math.MaxInt64 / time.Millisecond)

// CheckTTL returns CodeInvalid for a TTL, in milliseconds, that no worker can grant.
func CheckTTL(ms int64) *Error {
	if ms < 0 || ms > maxTTLMS {
		return Errorf(CodeInvalid, "ttl_ms is %d; it must be from 0 (the spec's lease.ttl) to the spec's lease.max_ttl", ms)
	}
	return nil
}

// Validate rejects a request that no worker can grant: without a holder, with a TTL out of range, or with a string over
// its bound.
func (r CheckoutRequest) Validate() *Error {
	switch {
	case r.Holder == "":
		return Errorf(CodeInvalid, "holder is required: name the program that uses the worker")
	case len(r.Holder) > MaxHolderBytes:
		return Errorf(CodeInvalid, "holder has %d bytes; at most %d are allowed", len(r.Holder), MaxHolderBytes)
	case len(r.RequestID) > MaxRequestIDBytes:
		return Errorf(CodeInvalid, "request_id has %d bytes; at most %d are allowed", len(r.RequestID), MaxRequestIDBytes)
	case len(r.AttemptID) > MaxRequestIDBytes:
		return Errorf(CodeInvalid, "attempt_id has %d bytes; at most %d are allowed", len(r.AttemptID), MaxRequestIDBytes)
	case len(r.Session) > MaxSessionBytes:
		return Errorf(CodeInvalid, "session has %d bytes; at most %d are allowed", len(r.Session), MaxSessionBytes)
	case !validTokenHash(r.TokenHash):
		return Errorf(CodeInvalid, "token_hash has %d bytes; it must be the 64 hexadecimal digits of a SHA-256 hash",
			len(r.TokenHash))
	}
	return CheckTTL(r.TTLMS)
}

// TTL is how long the lease lasts from the answer that carries it.
func (l Lease) TTL() time.Duration {
	if l.TTLMS > 0 {
		return time.Duration(l.TTLMS) * time.Millisecond
	}
	return l.ExpiresAt.Sub(l.GrantedAt)
}

// RenewRequest extends a lease to TTLMS milliseconds from now (0: the spec's lease.ttl).
type RenewRequest struct {
	LeaseID string `json:"lease_id"`
	TTLMS   int64  `json:"ttl_ms,omitempty"`
	// TokenHash, unless it is empty, must be that of the lease: the sender passes a client's request on.
	TokenHash string `json:"token_hash,omitempty"`
}

// Lease is the exclusive right to one worker until ExpiresAt.
type Lease struct {
	ID          string `json:"id"`
	Worker      string `json:"worker"`
	Seq         int64  `json:"seq"`
	Incarnation int64  `json:"incarnation"`
	Holder      string `json:"holder"`
	Session     string `json:"session,omitempty"`
	Host        string `json:"host"`
	// Endpoint is the base URL of the gateway for calls under this lease: http://HOST:PORT or unix:PATH.
	Endpoint string `json:"endpoint"`
	// Address is where a program of protocol "none" listens itself; empty for the others.
	Address   string    `json:"address,omitempty"`
	GrantedAt time.Time `json:"granted_at"`
	ExpiresAt time.Time `json:"expires_at"`
	// Token is the authority to use the lease over HTTP. Only the answer to the taker has it.
	Token string `json:"token,omitempty"`
	// TokenHash is the hash of Token; empty for a lease without one.
	TokenHash string `json:"token_hash,omitempty"`
	// TTLMS is how long the lease lasts from the answer that carries it, in milliseconds. GrantedAt and ExpiresAt are by
	// Temporal's clock, which no other machine's is compared with.
	TTLMS int64 `json:"ttl_ms,omitempty"`
}

// CheckTokenHash returns CodeForbidden if hash is not that of the lease; an empty hash passes.
func (l Lease) CheckTokenHash(hash string) *Error {
	if hash == "" || hash == l.TokenHash {
		return nil
	}
	return Errorf(CodeForbidden, "lease %s has another token; send the one that its checkout returned, as %s or as "+
		"LEASE~TOKEN", l.ID, HeaderLeaseToken)
}

// Outcome is the holder's report on the worker at checkin.
type Outcome string

// Outcomes.
const (
	OutcomeOK    Outcome = "ok"    // the worker is fine
	OutcomeError Outcome = "error" // the worker is degraded until a probe passes
	OutcomeClose Outcome = "close" // the worker's process must be replaced
)

// Usage counts a holder's calls under a lease.
type Usage struct {
	Requests int64 `json:"requests"`
	Failed   int64 `json:"failed"`
	TotalMS  int64 `json:"total_ms"`
}

// CheckinRequest returns a lease. A stale lease ID changes nothing and is counted.
type CheckinRequest struct {
	LeaseID string  `json:"lease_id"`
	Outcome Outcome `json:"outcome,omitempty"` // "" means ok
	Error   string  `json:"error,omitempty"`
	Usage   Usage   `json:"usage"`
	// TokenHash, unless it is empty, must be that of the lease: the sender passes a client's request on.
	TokenHash string `json:"token_hash,omitempty"`
}

// CheckinResult is the worker's state after a checkin.
type CheckinResult struct {
	State lifecycle.State `json:"state"`
}

// RefusalDetails is the detail of a rejected update.
type RefusalDetails struct {
	RetryAfterMS int64 `json:"retry_after_ms"`
}
