package wire

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"sync"
)

// What a worker counts by itself, such as the requests it makes to others, comes with its answers, in headers that cost nothing
// where there are none; what it counts outside of calls comes as the host call CountMethod.

const (
	// CountHeader begins the name of a header of an answer; the counter's name follows it.
	CountHeader = "tempool-count-"
	// CountMethod is the host call by which a worker adds to counters outside of answers; its argument is an object of whole numbers.
	CountMethod = "worker.count"
	// MaxCounters bounds the counters of one worker. What is counted under further names is added up under OtherCounter.
	MaxCounters  = 64
	OtherCounter = "other"

	maxCounterName = 64      // bytes
	maxCount       = 1 << 53 // what every language's numbers hold
)

// counters are the counters of one worker.
type counters struct {
	mu     sync.Mutex
	totals map[string]int64 // guarded by mu
}

// CountsOf returns what the worker behind c has counted so far, by the counter's name; nil when it has counted nothing, as JSON-RPC
// workers never do. Counts begin with the Conn, never fall, and stay when it is Done.
func CountsOf(c Conn) map[string]int64 {
	l, ok := c.(*conn)
	if !ok {
		return nil
	}
	l.counters.mu.Lock()
	defer l.counters.mu.Unlock()
	return maps.Clone(l.counters.totals)
}

// addHeaders adds what an answer's headers tell. The reader calls it, before the answer reaches its caller.
func (c *counters) addHeaders(headers map[string]string) error {
	for key, value := range headers {
		name, isCount := strings.CutPrefix(key, CountHeader)
		if !isCount {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || !validCount(name, n) {
			return violation("header %.100q: %.40q; a counter's name has 1 to %d of a-z, 0-9 and _, and its count is a whole number", key, value, maxCounterName)
		}
		c.add(name, n)
	}
	return nil
}

// addHostCall adds what CountMethod brings; its error is a *RemoteError, and then nothing is added.
func (c *counters) addHostCall(payload []byte) error {
	var told map[string]int64
	if err := json.Unmarshal(payload, &told); err != nil {
		return &RemoteError{Code: CodeInvalidParams, Message: CountMethod + " takes an object of whole numbers, by the counters' names"}
	}
	for name, n := range told {
		if !validCount(name, n) {
			return &RemoteError{Code: CodeInvalidParams, Message: "a counter's name has 1 to 64 of a-z, 0-9 and _, and its count is a whole number from 0 to 2^53"}
		}
	}
	for name, n := range told {
		c.add(name, n)
	}
	return nil
}

func validCount(name string, n int64) bool {
	odd := func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_') }
	return name != "" && len(name) <= maxCounterName && !strings.ContainsFunc(name, odd) && n >= 0 && n <= maxCount
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
	if sum := c.totals[name] + n; sum >= 0 { // it would take years to get there
		c.totals[name] = sum
	}
}
