package tempool

import "github.com/tempool/tempool/api"

// The words of api that a program of the client reads or writes, under the client's own name.
type (
	ApplyResult              = api.ApplyResult
	CheckinRequest           = api.CheckinRequest
	CheckinResult            = api.CheckinResult
	Code                     = api.Code
	Control                  = api.Control
	Error                    = api.Error
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
	WorkerState              = api.WorkerState
)

// How a lease went; see Lease.Checkin.
const (
	OutcomeOK    = api.OutcomeOK
	OutcomeError = api.OutcomeError
	OutcomeClose = api.OutcomeClose
)

// The codes of errors.
const (
	CodeBusy             = api.CodeBusy
	CodeDegraded         = api.CodeDegraded
	CodeDraining         = api.CodeDraining
	CodeSuspended        = api.CodeSuspended
	CodeStarting         = api.CodeStarting
	CodeFailed           = api.CodeFailed
	CodeContinuing       = api.CodeContinuing
	CodeInvalid          = api.CodeInvalid
	CodePoolNotFound     = api.CodePoolNotFound
	CodePoolExists       = api.CodePoolExists
	CodeWorkerNotFound   = api.CodeWorkerNotFound
	CodeLeaseNotFound    = api.CodeLeaseNotFound
	CodeLeaseFenced      = api.CodeLeaseFenced
	CodeSuperseded       = api.CodeSuperseded
	CodeStartFailed      = api.CodeStartFailed
	CodeNoWorkers        = api.CodeNoWorkers
	CodeQueueFull        = api.CodeQueueFull
	CodeQueueTimeout     = api.CodeQueueTimeout
	CodeDeadlineExceeded = api.CodeDeadlineExceeded
	CodeWorkerCrashed    = api.CodeWorkerCrashed
	CodeWorkerError      = api.CodeWorkerError
	CodePayloadTooLarge  = api.CodePayloadTooLarge
	CodeRateLimited      = api.CodeRateLimited
	CodeUnavailable      = api.CodeUnavailable
	CodeCancelled        = api.CodeCancelled
	CodeSessionNotFound  = api.CodeSessionNotFound
	CodeSessionExists    = api.CodeSessionExists
	CodeProgramNotFound  = api.CodeProgramNotFound
	CodeVersionConflict  = api.CodeVersionConflict
	CodeStoreFull        = api.CodeStoreFull
	CodeStoreUnavailable = api.CodeStoreUnavailable
)

// For errors.Is: an Error matches the one here that has its code.
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
	ErrWorkerError      = api.ErrWorkerError
	ErrPayloadTooLarge  = api.ErrPayloadTooLarge
	ErrRateLimited      = api.ErrRateLimited
	ErrInvalid          = api.ErrInvalid
	ErrCancelled        = api.ErrCancelled
	ErrUnavailable      = api.ErrUnavailable
	ErrSessionNotFound  = api.ErrSessionNotFound
	ErrSessionExists    = api.ErrSessionExists
	ErrProgramNotFound  = api.ErrProgramNotFound
	ErrVersionConflict  = api.ErrVersionConflict
	ErrStoreFull        = api.ErrStoreFull
	ErrStoreUnavailable = api.ErrStoreUnavailable
)

// CodeOf is the code of the first Error in err's chain, or "" if there is none.
func CodeOf(err error) Code { return api.CodeOf(err) }
