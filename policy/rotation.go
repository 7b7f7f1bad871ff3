package policy

import (
	"fmt"
	"math"
	"time"

	"github.com/tempool/tempool/spec"
)

// RequestLimit is how many requests one incarnation serves: max_requests spread within ±jitter by random in [0,1), at least 1, so that workers that
// started together are not rotated together; or 0 for no limit.
func RequestLimit(r spec.Rotation, random float64) int64 {
	if r.MaxRequests <= 0 {
		return 0
	}
	jitter := unit(r.Jitter)
	return max(1, int64(math.Round(float64(r.MaxRequests)*(1-jitter+2*jitter*unit(random)))))
}

// RotateForRequests decides whether an incarnation that has served some requests is replaced: Restart if limit, which RequestLimit gave, is reached, else
// Rest. A limit of 0 or less is none, here and below.
func RotateForRequests(served, limit int64) Decision {
	return rotate(limit > 0 && served >= limit, "served %s (limit %d, rotation.max_requests)", counted(served, "request"), limit)
}

// RotateForMemory decides by the memory of the whole process tree. baseline is that from which the limit was derived; 0 if it was not.
func RotateForMemory(used, limit, baseline int64) Decision {
	key := keyMaxMemory
	if baseline > 0 {
		key = fmt.Sprintf("%s, baseline %s", keyAutoMaxMemory, megabytes(baseline))
	}
	return rotate(limit > 0 && used >= limit, "its process tree uses %s of memory (limit %s, %s)", megabytes(used), megabytes(limit), key)
}

// RotateForUptime decides by the time since the incarnation became ready.
func RotateForUptime(uptime, limit time.Duration) Decision {
	return rotate(limit > 0 && uptime >= limit, "up for %s (limit %s, rotation.max_uptime)", shown(uptime), shown(limit))
}

func rotate(reached bool, reason string, args ...any) Decision {
	if !reached {
		return Decision{Action: Rest, Reason: "No rotation limit is reached."}
	}
	return Decision{Action: Restart, Reason: "Rotating worker: " + fmt.Sprintf(reason, args...) + "."}
}
