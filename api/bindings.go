package api

// SessionBinding is the worker that serves a session's calls if it is free. It is a preference: any worker can serve any session.
type SessionBinding struct {
	Session string `json:"session"`
	Worker  string `json:"worker,omitempty"` // POOL/N; "" for none
}

// SessionBindings is a page of the bindings of one host to its workers, by session. Next is the session after which the next page begins, "" on
// the last.
type SessionBindings struct {
	Bindings []SessionBinding `json:"bindings"`
	Next     string           `json:"next"`
}

// MaxBindingsPage is the largest page of bindings.
const MaxBindingsPage = 1000

// BindRequest binds a session to a worker of the gateway's host.
type BindRequest struct {
	Worker string `json:"worker"` // POOL/N
}
