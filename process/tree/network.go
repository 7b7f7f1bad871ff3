package tree

import (
	"maps"

	"github.com/tempool/tempool/api"
)

// networkInterface is an interface of a network namespace.
type networkInterface struct {
	namespace uint64
	name      string
}

// maxInterfaces bounds the interfaces of a tree. A program may make as many as it likes in a namespace that it has
// made.
const maxInterfaces = 128

// networkTotal adds up what the interfaces of a tree count. An interface that is gone still counts, and one whose
// counters have fallen has restarted at 0.
type networkTotal struct {
	latest map[networkInterface]api.NetworkBytes // nil before the first
	total  api.NetworkBytes
}

// add returns the total after a reading; nil until there was something to read.
func (n *networkTotal) add(now map[networkInterface]api.NetworkBytes) *api.NetworkBytes {
	if len(now) == 0 && n.latest == nil {
		return nil
	}
	for id, bytes := range now {
		n.total.ReceivedBytes += growth(n.latest[id].ReceivedBytes, bytes.ReceivedBytes)
		n.total.SentBytes += growth(n.latest[id].SentBytes, bytes.SentBytes)
	}
	if n.latest == nil || len(n.latest) > 2*maxInterfaces {
		n.latest = make(map[networkInterface]api.NetworkBytes, len(now))
	}
	maps.Copy(n.latest, now) // an interface that this reading lacks may be in the next one
	total := n.total
	return &total
}

func growth(before, now int64) int64 {
	if now < before {
		return now
	}
	return now - before
}
