package workflows

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tempool/tempool/workflows/internal/workflowtest"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// runWithFormat runs a workflow that continues as new, in a build that knows a format, with the header that an earlier
// run wrote, and returns the header of the next run.
func runWithFormat(t *testing.T, known int, header *common.Header) (next *common.Header, err error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	if header != nil {
		suite.SetHeader(header)
	}
	env := workflowtest.NewEnvironment(&suite,
		worker.Options{Interceptors: []interceptor.WorkerInterceptor{&stateFormats{known: map[string]int{"Again": known,
			"Other": 9}}}})
	again := func(ctx workflow.Context) error { return workflow.NewContinueAsNewError(ctx, "Again") }
	env.RegisterWorkflowWithOptions(again, workflow.RegisterOptions{Name: "Again"})
	env.ExecuteWorkflow("Again")
	err = env.GetWorkflowError()
	var continued *workflow.ContinueAsNewError
	if errors.As(err, &continued) {
		return continued.Header, nil
	}
	return nil, err
}

func TestABuildContinuesItsOwnAndOlderRunsAndRefusesNewerOnes(t *testing.T) {
	fromSecond, err := runWithFormat(t, 2, nil)
	require.NoError(t, err, "a run without a mark is of the first format")
	var format int
	require.NoError(t, converter.GetDefaultDataConverter().FromPayload(fromSecond.GetFields()[stateFormatHeader], &format))
	require.Equal(t, 2, format)

	_, err = runWithFormat(t, 2, fromSecond)
	require.NoError(t, err)
	fromThird, err := runWithFormat(t, 3, fromSecond)
	require.NoError(t, err)

	_, err = runWithFormat(t, 2, fromThird)
	require.ErrorContains(t, err, "format 3, and this build knows formats up to 2")
	var panicked *temporal.PanicError
	require.ErrorAs(t, err, &panicked, "which fails the workflow task, not the workflow")
}
