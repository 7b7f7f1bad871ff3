package worker

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	sdk "github.com/tempool/tempool/sdk/go"
)

// functions are what this program registers for pools of kind "function".
var functions struct {
	sync.Mutex
	byName map[string]process.Function
}

var functionName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// Register makes fn a function that pools of kind "function" run within the agents of this program: [pool] function
// names it, and calls have its name as their method. Parameters, results, errors, sessions and the context are those of
// a method of sdk/go. Register before Start and Run; a name that is invalid or taken panics.
func Register[P, R any](name string, fn func(ctx context.Context, params P) (R, error)) {
	registerFunction(name, func(w *sdk.Worker) { sdk.AddMethod(w, name, fn) })
}

// RegisterStream is Register with a stream of values instead of a result.
func RegisterStream[P, V any](name string, fn func(ctx context.Context, params P, send func(V) error) error) {
	registerFunction(name, func(w *sdk.Worker) { sdk.AddStream(w, name, fn) })
}

func registerFunction(name string, addTo func(*sdk.Worker)) {
	functions.Lock()
	defer functions.Unlock()
	if !functionName.MatchString(name) {
		panic(fmt.Sprintf("worker.Register: invalid name %q; allowed: 1 to 63 characters of a-z, 0-9, _ and -, the first a "+
			"letter or digit", name))
	}
	if _, taken := functions.byName[name]; taken {
		panic(fmt.Sprintf("worker.Register: function %q is already registered", name))
	}
	if functions.byName == nil {
		functions.byName = make(map[string]process.Function)
	}
	w := new(sdk.Worker)
	addTo(w)
	functions.byName[name] = func(ctx context.Context, run process.FunctionRun) error {
		return w.Serve(ctx, run.Conn, run.Stopping, sdk.Embedding{
			Worker: run.Worker, Incarnation: run.Incarnation, Log: run.Log, Panicked: run.Crash,
		})
	}
}

// registered returns the functions of this program.
func registered() map[string]process.Function {
	functions.Lock()
	defer functions.Unlock()
	return maps.Clone(functions.byName)
}

// startQueues are the task queues of the starts that an agent takes.
func startQueues(labels []string, functions map[string]process.Function) []string {
	var queues []string
	for _, label := range labels {
		queues = append(queues, api.PlacementQueue(label))
		for _, name := range slices.Sorted(maps.Keys(functions)) {
			queues = append(queues, api.FunctionQueue(label, name))
		}
	}
	return queues
}
