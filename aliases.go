package tempool

import "github.com/tempool/tempool/api"

// The types of api that programs of the client read or write.
type (
	ApplyResult              = api.ApplyResult
	CheckinRequest           = api.CheckinRequest
	CheckinResult            = api.CheckinResult
	Code                     = api.Code
	Control                  = api.Control
	Error                    = api.Error
	Event                    = api.Event
	EvacuateRequest          = api.EvacuateRequest
	MigrateSessionRequest    = api.MigrateSessionRequest
	Outcome                  = api.Outcome
	PoolStart                = api.PoolStart
	PoolStatus               = api.PoolStatus
	PoolStopResult           = api.PoolStopResult
	PoolWorkers              = api.PoolWorkers
	RebalanceSessionsRequest = api.RebalanceSessionsRequest
	RestartRequest           = api.RestartRequest
	RestartResult            = api.RestartResult
	ScaleResult              = api.ScaleResult
	SessionCopy              = api.SessionCopy
	SessionCopyRequest       = api.SessionCopyRequest
	SessionCopyStep          = api.SessionCopyStep
	SessionMoves             = api.SessionMoves
	SessionProgress          = api.SessionProgress
	Usage                    = api.Usage
	Worker                   = api.Worker
	WorkerError              = api.WorkerError
	WorkerState              = api.WorkerState
)

// Outcomes of a lease; see Lease.Checkin.
const (
	OutcomeOK    = api.OutcomeOK
	OutcomeError = api.OutcomeError
	OutcomeClose = api.OutcomeClose
)

// Targets for errors.Is: an Error matches the one with its code.
var (
	ErrBusy             = api.ErrBusy
	ErrDegraded         = api.ErrDegraded
	ErrDraining         = api.ErrDraining
	ErrSuspended        = api.ErrSuspended
	ErrStarting         = api.ErrStarting
	ErrFailed           = api.ErrFailed
	ErrContinuing       = api.ErrContinuing
	ErrPoolNotFound     = api.ErrPoolNotFound
	ErrPoolExists       = api.ErrPoolExists
	ErrWorkerNotFound   = api.ErrWorkerNotFound
	ErrLeaseNotFound    = api.ErrLeaseNotFound
	ErrLeaseFenced      = api.ErrLeaseFenced
	ErrNoWorkers        = api.ErrNoWorkers
	ErrQueueFull        = api.ErrQueueFull
	ErrQueueTimeout     = api.ErrQueueTimeout
	ErrDeadlineExceeded = api.ErrDeadlineExceeded
	ErrWorkerCrashed    = api.ErrWorkerCrashed
	ErrMemoryExceeded   = api.ErrMemoryExceeded
	ErrWorkerError      = api.ErrWorkerError
	ErrMethodNotFound   = api.ErrMethodNotFound
	ErrPayloadTooLarge  = api.ErrPayloadTooLarge
	ErrRateLimited      = api.ErrRateLimited
	ErrInvalid          = api.ErrInvalid
	ErrCancelled        = api.ErrCancelled
	ErrUnavailable      = api.ErrUnavailable
	ErrHostTaken        = api.ErrHostTaken
	ErrUnauthorized     = api.ErrUnauthorized
	ErrForbidden        = api.ErrForbidden
	ErrKeyRequired      = api.ErrKeyRequired
	ErrSlowReader       = api.ErrSlowReader
	ErrSessionNotFound  = api.ErrSessionNotFound
	ErrSessionExists    = api.ErrSessionExists
	ErrProgramNotFound  = api.ErrProgramNotFound
	ErrVersionConflict  = api.ErrVersionConflict
	ErrStoreFull        = api.ErrStoreFull
	ErrStoreUnavailable = api.ErrStoreUnavailable
)

// CodeOf returns the code of the first Error in err's chain, such as api.CodeNoWorkers, or "" if there is none.
func CodeOf(err error) Code { return api.CodeOf(err) }
