package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/wire"
)

func TestProblemOfEachError(t *testing.T) {
	t.Parallel()
	remote := &wire.RemoteError{Code: "odd", Message: "so it was"}
	for name, c := range map[string]struct {
		err    error
		status int
		code   api.Code
	}{
		"coded": {api.Errorf(api.CodeLeaseFenced, "gone"), 409, api.CodeLeaseFenced},
		"coded and wrapped": {fmt.Errorf("while calling: %w", api.Errorf(api.CodeQueueFull, "full")), 429,
			api.CodeQueueFull},
		"a deadline":           {context.DeadlineExceeded, 504, api.CodeDeadlineExceeded},
		"a cancel":             {context.Canceled, 499, api.CodeCancelled},
		"the worker's own":     {api.Errorf(api.CodeWorkerError, "failed: %w", remote), 500, api.CodeWorkerError},
		"no such method":       {api.Errorf(api.CodeMethodNotFound, "failed: %w", remote), 404, api.CodeMethodNotFound},
		"unknown":              {errors.New("surprise"), 500, codeInternal},
		"a code nobody mapped": {api.Errorf("novel", "surprise"), 500, "novel"},
	} {
		t.Run(name, func(t *testing.T) {
			p := problemOf(c.err)
			require.Equal(t, c.status, p.Status)
			require.Equal(t, c.code, p.Code)
			require.NotEmpty(t, p.Title)
			require.NotEmpty(t, p.Detail)
			require.Equal(t, c.code == api.CodeWorkerError || c.code == api.CodeMethodNotFound, p.WorkerError != nil)
		})
	}
}
