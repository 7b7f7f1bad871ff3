package sdk

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/tempool/tempool/process/wire"
)

// Call is the call that a handler serves. It is safe for concurrent use, and valid until the handler returns.
type Call struct {
	// Headers are those of the request, such as tempool-session and traceparent. Do not change them.
	Headers map[string]string
	// Worker is the name of the worker that serves the call, such as go/0, and Incarnation counts its lives, from 1.
	Worker      string
	Incarnation int64

	conn       *connection
	id         uint32 // 0 for a notification
	sendsLines bool   // its stream is lines of JSON

	mu       sync.Mutex
	response map[string]string
	counts   map[string]int64
}

type callKey struct{}

// FromContext returns the call that a handler's context belongs to. It panics outside of a handler.
func FromContext(ctx context.Context) *Call {
	c, ok := ctx.Value(callKey{}).(*Call)
	if !ok {
		panic("sdk.FromContext needs the context of a handler")
	}
	return c
}

// SetHeader sets a header of the response.
func (c *Call) SetHeader(key, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.response == nil {
		c.response = make(map[string]string)
	}
	c.response[key] = value
}

// Count adds n, from 0, to a counter in this worker's metrics, such as "api_calls"; the host gets it with the answer. A
// name has 1 to 64 characters of a-z, 0-9 and _. The host has 64 counters per worker and adds further names to "other".
func (c *Call) Count(name string, n int64) error {
	if !wire.ValidCount(name, n) {
		return fmt.Errorf("count %.80q by %d: a name has 1 to 64 characters of a-z, 0-9 and _, and a count is from 0 to 2^53",
			name, n)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[string]int64)
	}
	c.counts[name] = min(c.counts[name]+n, wire.MaxCount)
	return nil
}

// Session is the session of this call, which every worker of the pool sees alike.
func (c *Call) Session() *Session { return &Session{Entries{c, "data"}} }

// Programs are the programs of this call's session.
func (c *Call) Programs() Programs { return Programs{c} }

// Host makes a host call. params is encoded as JSON unless it is nil, and the answer decoded into result unless that is
// nil. It fails with a *HostError if the host refuses.
func (c *Call) Host(ctx context.Context, method string, params, result any) error {
	return c.conn.hostCall(ctx, c.id, method, params, result)
}

// responseHeaders are the headers of the answer, counters included.
func (c *Call) responseHeaders() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	headers := maps.Clone(c.response)
	for name, n := range c.counts {
		if headers == nil {
			headers = make(map[string]string, len(c.counts))
		}
		headers[wire.CountHeader+name] = strconv.FormatInt(n, 10)
	}
	return headers
}

// reportCounts sends the counters of a notification, which has no answer.
func (c *Call) reportCounts(ctx context.Context) error {
	c.mu.Lock()
	counts := maps.Clone(c.counts)
	c.mu.Unlock()
	if len(counts) == 0 {
		return nil
	}
	return c.Host(ctx, wire.CountMethod, counts, nil)
}

// Name returns the worker's name, such as go/0; empty if Tempool did not start this program.
func Name() string { return os.Getenv("TEMPOOL_WORKER") }

// Incarnation returns the incarnation of this process, from 1; 0 if Tempool did not start this program.
func Incarnation() int64 {
	parts := strings.Split(os.Getenv("TEMPOOL_INCARNATION"), ":")
	if len(parts) < 3 {
		return 0
	}
	n, err := strconv.ParseInt(parts[len(parts)-2], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
