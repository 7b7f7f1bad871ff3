package codemetrics

import (
	"errors"

	"github.com/tempool/tempool/api"
)

// leaseFate is what becomes of a lease after a call under it broke off.
type leaseFate int

const (
	loseLease     leaseFate = iota // it has ended: there is nothing to give back
	keepLease                      // the worker is fine
	returnLease                    // give it back and take another
	replaceWorker                  // give it back and say that the worker must be replaced
)

// verdict is what a broken call means.
type verdict struct {
	lease leaseFate
	// begun says that the worker may have worked on the files, so that one of them may be to blame.
	begun bool
	// hopeless says that no other worker will do better.
	hopeless bool
}

func judge(err error) verdict {
	code := api.CodeOf(err)
	started := startedOf(err)
	switch code {
	case api.CodeWorkerCrashed, api.CodeLeaseFenced, api.CodeLeaseNotFound, api.CodeWorkerNotFound, api.CodeSuperseded:
		return verdict{lease: loseLease, begun: started}
	case api.CodeDeadlineExceeded:
		if started {
			return verdict{lease: replaceWorker, begun: true}
		}
		return verdict{lease: returnLease}
	case api.CodeWorkerError:
		return verdict{lease: keepLease, begun: true}
	case api.CodeInvalid, api.CodePoolNotFound:
		return verdict{lease: returnLease, hopeless: true}
	}
	return verdict{lease: returnLease, begun: started}
}

func startedOf(err error) bool {
	var coded *api.Error
	return errors.As(err, &coded) && coded.Started
}
