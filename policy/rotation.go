package policy

import (
	"fmt"
	"math"
	"time"

	"github.com/tempool/tempool/internal/format"
	"github.com/tempool/tempool/spec"
)

// RequestLimit is how many requests one incarnation serves: max_requests spread within ±jitter by random in [0,1), at
// least 1, so that workers that started together are not rotated together; or 0 for no limit.
func RequestLimit(r spec.Rotation, random float64) int64 {
	if r.MaxRequests <= 0 {
		return 0
	}
	jitter := unit(r.Jitter)
	return max(1, int64(math.Round(float64(r.MaxRequests)*(1-jitter+2*jitter*unit(random)))))
}

// RotateForRequests is why an incarnation that has served some requests is replaced: limit, which RequestLimit gave, is
// reached. It is "" if not. A limit of 0 or less is none, here and below.
func RotateForRequests(served, limit int64) string {
	return rotate(limit > 0 && served >= limit, "served %s (limit %d, rotation.max_requests)",
		format.Plural(served, "request"), limit)
}

// RotateForMemory decides by the memory of the whole process tree. baseline is that from which the limit was derived; 0
// if it was not.
func RotateForMemory(used, limit, baseline int64) string {
	key := keyMaxMemory
	if baseline > 0 {
		key = fmt.Sprintf("%s, baseline %s", keyAutoMaxMemory, megabytes(baseline))
	}
	return rotate(limit > 0 && used >= limit, "its process tree uses %s of memory (limit %s, %s)", megabytes(used),
		megabytes(limit), key)
}

// RotateForUptime decides by the time since the incarnation became ready.
func RotateForUptime(uptime, limit time.Duration) string {
	return rotate(limit > 0 && uptime >= limit, "up for %s (limit %s, rotation.max_uptime)", shown(uptime), shown(limit))
}

func rotate(reached bool, reason string, args ...any) string {
	if !reached {
		return ""
	}
	return "Rotating worker: " + fmt.Sprintf(reason, args...) + "."
}
