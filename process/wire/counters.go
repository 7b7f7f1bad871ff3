package wire

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"sync"
)

// A worker adds to its counters with headers of its responses, or outside of calls with the host call CountMethod.

const (
	// CountHeader is the prefix of a response header; the counter's name follows.
	CountHeader = "tempool-count-"
	// CountMethod is the host call that adds to counters; its argument is an object of whole numbers.
	CountMethod = "worker.count"
	// MaxCounters bounds the counters of one worker. Further names are summed under OtherCounter.
	MaxCounters  = 64
	OtherCounter = "other"
	// MaxCount bounds one count: it is exact in every language's numbers.
	MaxCount = 1 << 53

	maxCounterName = 64 // bytes
)

// counters are the counters of one worker.
type counters struct {
	mu     sync.Mutex
	totals map[string]int64 // guarded by mu
}

// CountsOf returns the counters of the worker behind c by name; nil if there are none, and for JSON-RPC. They start at
// 0 with the Conn, never decrease, and stay readable when the Conn is Done.
func CountsOf(c *Conn) map[string]int64 {
	c.counters.mu.Lock()
	defer c.counters.mu.Unlock()
	return maps.Clone(c.counters.totals)
}

// addHeaders adds the counts in a response's headers. The reader calls it before it delivers the response.
func (c *counters) addHeaders(headers map[string]string) error {
	for key, value := range headers {
		name, isCount := strings.CutPrefix(key, CountHeader)
		if !isCount {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || !ValidCount(name, n) {
			return violation("header %.100q: %.40q; a counter's name has 1 to %d of a-z, 0-9 and _, and its count is a whole "+
				"number", key, value, maxCounterName)
		}
		c.add(name, n)
	}
	return nil
}

// addHostCall adds the counts of a CountMethod call. If it fails, with a *RemoteError, it adds nothing.
func (c *counters) addHostCall(payload []byte) error {
	var added map[string]int64
	if err := json.Unmarshal(payload, &added); err != nil {
		return &RemoteError{Code: CodeInvalidParams, Message: CountMethod +
			" takes an object of whole numbers, by the counters' names"}
	}
	for name, n := range added {
		if !ValidCount(name, n) {
			return &RemoteError{Code: CodeInvalidParams,
				Message: "a counter's name has 1 to 64 of a-z, 0-9 and _, and its count is a whole number from 0 to 2^53"}
		}
	}
	for name, n := range added {
		c.add(name, n)
	}
	return nil
}

// ValidCount reports whether a worker may add n to a counter of this name.
func ValidCount(name string, n int64) bool {
	invalid := func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_') }
	return name != "" && len(name) <= maxCounterName && !strings.ContainsFunc(name, invalid) && n >= 0 && n <= MaxCount
}

func (c *counters) add(name string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.totals == nil {
		c.totals = make(map[string]int64)
	}
	if _, known := c.totals[name]; !known && len(c.totals) >= MaxCounters-1 {
		name = OtherCounter
	}
	if sum := c.totals[name] + n; sum >= 0 { // drop an overflow
		c.totals[name] = sum
	}
}
