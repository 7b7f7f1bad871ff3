package codemetrics

import (
	"errors"

	"github.com/tempool/tempool/api"
)

// leaseAction is what to do with a lease after a failed call.
type leaseAction int

const (
	dropLease     leaseAction = iota // the lease has ended
	keepLease                        // the worker is fine
	returnLease                      // check it in and take another one
	replaceWorker                    // check it in with OutcomeClose
)

// failure is what a failed call means for the job.
type failure struct {
	action leaseAction
	// started says that the worker may have worked on the files, so one of them may be the cause.
	started bool
	// permanent says that no other worker can succeed.
	permanent bool
}

func classify(err error) failure {
	var coded *api.Error
	started := errors.As(err, &coded) && coded.Started
	switch api.CodeOf(err) {
	case api.CodeWorkerCrashed, api.CodeMemoryExceeded, api.CodeLeaseFenced, api.CodeLeaseNotFound, api.CodeWorkerNotFound, api.CodeSuperseded:
		return failure{action: dropLease, started: started}
	case api.CodeDeadlineExceeded:
		if started {
			return failure{action: replaceWorker, started: true}
		}
	case api.CodeWorkerError:
		return failure{action: keepLease, started: true}
	case api.CodeInvalid, api.CodePoolNotFound, api.CodeMethodNotFound:
		return failure{action: returnLease, permanent: true}
	}
	return failure{action: returnLease, started: started}
}
