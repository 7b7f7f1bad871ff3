package api

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/tempool/tempool/spec"
)

const maxPoolName = 63 // bytes

// ValidPoolName reports whether name is a valid pool name: 1 to 63 of a–z, 0–9, '-' and '_', starting with a letter or
// digit. The name "host" is reserved: the workflow IDs of its workers would be those of hosts.
func ValidPoolName(name string) bool {
	if name == "" || len(name) > maxPoolName || name == "host" || name[0] == '-' || name[0] == '_' {
		return false
	}
	for i := range len(name) { // each call under a lease parses a name
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// CheckPoolName returns an error of the given code for an invalid pool name, else nil.
func CheckPoolName(name string, code Code) *Error {
	if ValidPoolName(name) {
		return nil
	}
	return Errorf(code, "invalid pool name %.100q; use 1 to 63 of a-z, 0-9, '-' and '_' (host is reserved)", name)
}

// PoolWorkflowID returns the workflow ID of a pool.
func PoolWorkflowID(pool string) string { return "tempool/" + pool }

// WorkerWorkflowID returns the workflow ID of the worker in a slot of a pool.
func WorkerWorkflowID(pool string, slot int) string {
	return "tempool/" + WorkerName(pool, slot)
}

// MigrateSessionWorkflowID returns the workflow ID of a session's migration; only one runs at a time.
func MigrateSessionWorkflowID(pool, session string) string {
	return PoolWorkflowID(pool) + "/sessions/migrate/" + session
}

// EvacuateWorkerWorkflowID returns the workflow ID of a worker's evacuation; only one runs at a time.
func EvacuateWorkerWorkflowID(pool string, slot int) string {
	return PoolWorkflowID(pool) + "/sessions/evacuate/" + strconv.Itoa(slot)
}

// RebalanceSessionsWorkflowID returns the workflow ID of a pool's session rebalancing; only one runs at a time.
func RebalanceSessionsWorkflowID(pool string) string {
	return PoolWorkflowID(pool) + "/sessions/rebalance"
}

// PlacementQueue returns the task queue that agents with free capacity for workers of this label poll.
func PlacementQueue(label string) string {
	label = cmp.Or(label, DefaultPlacement)
	return "tempool/place/" + label
}

// FunctionQueue returns the task queue that those of the agents poll which have the function, for pools of kind
// "function".
func FunctionQueue(label, function string) string {
	return PlacementQueue(label) + "/function/" + function
}

// StartQueue returns the task queue of the starts of a pool's workers.
func StartQueue(p spec.Pool) string {
	if p.Kind == spec.KindFunction {
		return FunctionQueue(p.Placement, p.Function)
	}
	return PlacementQueue(p.Placement)
}

// HostQueue returns the task queue of one host, for all activities on its processes.
func HostQueue(hostID string) string { return "tempool/host/" + hostID }

// PoolQueue returns the task queue of the activity Execute for one pool.
func PoolQueue(pool string) string { return "tempool/pool/" + pool }

// WorkerName returns the name of a worker in messages and for people: <pool>/<slot>.
func WorkerName(pool string, slot int) string { return pool + "/" + strconv.Itoa(slot) }

// PoolOf is the pool of a worker's name.
func PoolOf(worker string) string {
	pool, _, _ := strings.Cut(worker, "/")
	return pool
}

// ParseWorkerName splits <pool>/<slot>; any other form is CodeInvalid.
func ParseWorkerName(name string) (pool string, slot int, err error) {
	pool, number, found := strings.Cut(name, "/")
	if found && ValidPoolName(pool) {
		if slot, err = strconv.Atoi(number); err == nil && slot >= 0 {
			return pool, slot, nil
		}
	}
	return "", 0, Errorf(CodeInvalid, "invalid worker name %q; write POOL/SLOT, for example python/0", name)
}

// LeaseID returns the ID of a lease: <pool>.<slot>.<incarnation>.<seq>. The last two numbers order the leases of a
// worker.
func LeaseID(pool string, slot int, incarnation, seq int64) string {
	return pool + "." + strconv.Itoa(slot) + "." + strconv.FormatInt(incarnation, 10) + "." + strconv.FormatInt(seq, 10)
}

// LeaseRef is a parsed lease ID.
type LeaseRef struct {
	Pool        string
	Slot        int
	Incarnation int64
	Seq         int64
}

// Worker returns the name of the lease's worker.
func (r LeaseRef) Worker() string { return WorkerName(r.Pool, r.Slot) }

// Older reports whether r was granted before o on the same worker: it has the lower incarnation, or the same one and
// the lower seq.
func (r LeaseRef) Older(o LeaseRef) bool {
	if r.Incarnation != o.Incarnation {
		return r.Incarnation < o.Incarnation
	}
	return r.Seq < o.Seq
}

// ParseLeaseID parses a lease ID; any other form, such as a number with a leading zero, is CodeLeaseNotFound.
func ParseLeaseID(id string) (LeaseRef, error) {
	pool, numbers, _ := strings.Cut(id, ".")
	first, numbers, _ := strings.Cut(numbers, ".")
	second, third, _ := strings.Cut(numbers, ".")
	if ValidPoolName(pool) {
		slot, errSlot := strconv.Atoi(first)
		incarnation, errInc := strconv.ParseInt(second, 10, 64)
		seq, errSeq := strconv.ParseInt(third, 10, 64)
		oneForm := (first == "0" || first >= "1") && second >= "1" && third >= "1" // without a sign or a leading zero
		if errSlot == nil && errInc == nil && errSeq == nil && oneForm {
			return LeaseRef{pool, slot, incarnation, seq}, nil
		}
	}
	return LeaseRef{}, Errorf(CodeLeaseNotFound,
		"invalid lease ID %q; tempool checkout prints it as POOL.SLOT.INCARNATION.SEQ", id)
}
