// Package statuses has the HTTP statuses of errors.
package statuses

import (
	"net/http"

	"github.com/tempool/tempool/api"
)

// Codes that exist in HTTP only.
const (
	CodeNotFound         api.Code = "not_found"          // no such route
	CodeMethodNotAllowed api.Code = "method_not_allowed" // the route takes another method
)

// Of has the status of each code.
var Of = map[api.Code]int{
	api.CodePoolNotFound: http.StatusNotFound, api.CodeWorkerNotFound: http.StatusNotFound,
	api.CodeMethodNotFound: http.StatusNotFound,
	api.CodeLeaseNotFound:  http.StatusNotFound, CodeNotFound: http.StatusNotFound,
	api.CodeLeaseFenced: http.StatusConflict,
	api.CodeQueueFull:   http.StatusTooManyRequests, api.CodeRateLimited: http.StatusTooManyRequests,
	api.CodeQueueTimeout: http.StatusServiceUnavailable, api.CodeNoWorkers: http.StatusServiceUnavailable,
	api.CodeUnavailable: http.StatusServiceUnavailable, api.CodeBusy: http.StatusServiceUnavailable,
	api.CodeDegraded: http.StatusServiceUnavailable, api.CodeDraining: http.StatusServiceUnavailable,
	api.CodeSuspended: http.StatusServiceUnavailable, api.CodeStarting: http.StatusServiceUnavailable,
	api.CodeFailed: http.StatusServiceUnavailable, api.CodeContinuing: http.StatusServiceUnavailable,
	api.CodeDeadlineExceeded: http.StatusGatewayTimeout,
	api.CodeMemoryExceeded:   http.StatusBadGateway, api.CodeWorkerCrashed: http.StatusBadGateway,
	api.CodeStartFailed:     http.StatusBadGateway,
	api.CodeWorkerError:     http.StatusInternalServerError,
	api.CodePayloadTooLarge: http.StatusRequestEntityTooLarge,
	api.CodeInvalid:         http.StatusBadRequest,
	api.CodeKeyRequired:     http.StatusBadRequest,
	CodeMethodNotAllowed:    http.StatusMethodNotAllowed,
	api.CodeUnauthorized:    http.StatusUnauthorized,
	api.CodeSlowReader:      http.StatusRequestTimeout,
	api.CodeForbidden:       http.StatusForbidden,
	api.CodeCancelled:       499, // as in nginx: the client closed the connection
	api.CodeSessionNotFound: http.StatusNotFound,
	api.CodeSessionExists:   http.StatusPreconditionFailed, api.CodeVersionConflict: http.StatusPreconditionFailed,
	api.CodeStoreFull: http.StatusInsufficientStorage, api.CodeStoreUnavailable: http.StatusServiceUnavailable,
}
