package api

// Headers of a call through a gateway. Session, Key, Timeout, Priority and LeaseToken belong to the request, Worker and
// Incarnation to the answer.
const (
	// HeaderSession names the session that the call is for.
	HeaderSession = "Tempool-Session"
	// HeaderKey says whose call it is, in 1 to MaxKey bytes, for a pool with isolation.by = "key". No worker sees it.
	HeaderKey = "Tempool-Key"
	// HeaderTimeout bounds the call in milliseconds, waiting included.
	HeaderTimeout = "Tempool-Timeout"
	// HeaderPriority orders the calls in the gateway's queue, 0 to 9; the highest goes first. A waiting call gains one for
	// each tenth of queue.timeout.
	HeaderPriority = "Tempool-Priority"
	// HeaderLeaseToken has the token of the lease in the path.
	HeaderLeaseToken = "Tempool-Lease-Token"
	// HeaderWorker names the worker that answered, as POOL/SLOT.
	HeaderWorker = "Tempool-Worker"
	// HeaderIncarnation is the incarnation of the worker that answered.
	HeaderIncarnation = "Tempool-Incarnation"

	// HeaderForwarded and HeaderPeerToken mark a request that one gateway forwards to another; clients must not send them.
	// HeaderRefused marks the answer to one that the other gateway has not served.
	HeaderForwarded = "Tempool-Forwarded"
	HeaderPeerToken = "Tempool-Peer-Token"
	HeaderRefused   = "Tempool-Refused"
)

// MaxKey is the longest key of a call, in bytes.
const MaxKey = 256
