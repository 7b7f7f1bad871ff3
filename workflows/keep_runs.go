package workflows

import (
	"context"
	"fmt"
	"reflect"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// inputs are the types of the workflows' inputs.
var inputs = func() map[reflect.Type]bool {
	types := map[reflect.Type]bool{}
	for _, definition := range definitions {
		for i := range reflect.TypeOf(definition).NumIn() {
			types[reflect.TypeOf(definition).In(i)] = true
		}
	}
	return types
}()

// KeepRuns returns a converter with which an agent that cannot decode the input of a run, such as one without the key
// that it is encrypted with, leaves the run to another agent: its workflow task fails, and Temporal retries it. The SDK
// would end the workflow as failed.
func KeepRuns(payloads converter.DataConverter) converter.DataConverter {
	if payloads == converter.GetDefaultDataConverter() {
		// without contexts, for which the SDK would make a converter for each signal channel of each run
		return keptRuns{payloads}
	}
	return keptRunsInContext{keptRuns{payloads}}
}

type keptRuns struct{ converter.DataConverter }

// keptRunsInContext keeps runs with a converter that may depend on the context.
type keptRunsInContext struct{ keptRuns }

// FromPayloads decodes payloads. It panics if one is the input of a run and cannot be decoded.
func (k keptRuns) FromPayloads(payloads *common.Payloads, values ...any) error {
	err := k.DataConverter.FromPayloads(payloads, values...)
	if err == nil {
		return nil
	}
	for _, value := range values {
		if t := reflect.TypeOf(value); t.Kind() == reflect.Pointer && inputs[t.Elem()] {
			panic(fmt.Sprintf("cannot decode the input of this run, which another agent continues; give this agent the same "+
				"--payload-keys as the others: %v", err))
		}
	}
	return err
}

// WithWorkflowContext implements converter.ContextAware for a converter that does.
func (k keptRunsInContext) WithWorkflowContext(ctx converter.WorkflowContext) converter.DataConverter {
	if aware, ok := k.DataConverter.(converter.ContextAware); ok {
		return keptRunsInContext{keptRuns{aware.WithWorkflowContext(ctx)}}
	}
	return k
}

// WithContext implements converter.ContextAware for a converter that does.
func (k keptRunsInContext) WithContext(ctx context.Context) converter.DataConverter {
	if aware, ok := k.DataConverter.(converter.ContextAware); ok {
		return keptRunsInContext{keptRuns{aware.WithContext(ctx)}}
	}
	return k
}

// WithSerializationContext implements converter.DataConverterWithSerializationContext for a converter that does.
func (k keptRunsInContext) WithSerializationContext(ctx converter.SerializationContext) converter.DataConverter {
	if aware, ok := k.DataConverter.(converter.DataConverterWithSerializationContext); ok {
		return keptRunsInContext{keptRuns{aware.WithSerializationContext(ctx)}}
	}
	return k
}
