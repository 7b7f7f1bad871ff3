package tempool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
)

// retryExhausted is the retry hint when Temporal rejects a request for its rate.
const retryExhausted = 200 * time.Millisecond

// fromTemporal turns an error of Temporal into a coded one; action says what failed. A nil error stays nil.
func (c *Client) fromTemporal(err error, action string) error {
	if err == nil {
		return nil
	}
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok && app.Type() != "" {
		coded := &api.Error{Code: api.Code(app.Type()), Message: app.Message(), Err: err}
		var details api.RefusalDetails
		if app.HasDetails() && app.Details(&details) == nil {
			coded.RetryAfter = time.Duration(details.RetryAfterMS) * time.Millisecond
		}
		return coded
	}
	switch {
	case errors.Is(err, converter.ErrEncodingIsNotSupported), errors.Is(err, converter.ErrUnableToFindConverter):
		return api.Errorf(api.CodeInvalid,
			"%s: the answer is encrypted; set --payload-keys, TEMPOOL_PAYLOAD_KEYS or Options.Payloads to the keys of the "+
				"agents: %w", action, err)
	case is[*serviceerror.NamespaceNotFound](err):
		return api.Errorf(api.CodeUnavailable,
			"%s: Temporal has no namespace %q; create it, or set --namespace or TEMPORAL_NAMESPACE: %w", action, c.namespace,
			err)
	case is[*serviceerror.NotFound](err):
		return api.Errorf(api.CodeWorkerNotFound, "%s: no such workflow is running: %w", action, err)
	case is[*serviceerror.ResourceExhausted](err):
		return api.Errorf(api.CodeBusy, "%s: Temporal's rate limit is exceeded: %w", action, err).After(retryExhausted)
	case is[*serviceerror.WorkflowNotReady](err):
		return api.Errorf(api.CodeUnavailable,
			"%s: no agent has completed its newest task; check that one is running (tempool agent, or tempool dev), "+
				"and that it is not of an older build than the agents that ran it before, which its log says: %w", action, err)
	case is[*serviceerror.QueryFailed](err): // ours return no errors, so the agent could not answer
		return api.Errorf(api.CodeUnavailable,
			"%s: the agent that was asked cannot answer, perhaps because it is of an older build; upgrade it: %w", action, err)
	case errors.Is(err, context.DeadlineExceeded):
		return api.Errorf(api.CodeUnavailable,
			"%s: timed out; check that an agent is running (tempool agent, or tempool dev): %w", action, err)
	case is[*serviceerror.FailedPrecondition](err): // no agent has polled recently, or one run has had too many updates
		return api.Errorf(api.CodeUnavailable,
			"%s: not possible now; check that an agent is running (tempool agent, or tempool dev): %w", action, err)
	case is[*serviceerror.Unavailable](err), isTimeout(err):
		return api.Errorf(api.CodeUnavailable,
			"%s: no answer from Temporal or the agents; check that the server and an agent are running: %w", action, err)
	}
	return fmt.Errorf("%s: %w", action, err)
}

// is reports whether an error of this type is in err's chain.
func is[E error](err error) bool {
	_, found := errors.AsType[E](err)
	return found
}

// isTimeout reports whether a request to Temporal timed out.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || is[*serviceerror.DeadlineExceeded](err)
}
