package model_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	setup "github.com/tempool/tempool/internal/examplesetup"
	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pool(t *testing.T) spec.Spec {
	t.Helper()
	s, err := spec.Load("pool.toml")
	require.NoError(t, err)
	need.PythonModule(t, s.Pool.Command[0], "sklearn")
	return s
}

type params map[string]any

// start starts an incarnation of a worker and says how long that took.
func start(t *testing.T, host *process.Supervisor, s spec.Spec, slot int, incarnation int64) *process.Process {
	t.Helper()
	began := time.Now()
	p, err := host.Start(t.Context(),
		process.Launch{Worker: fmt.Sprintf("model/%d", slot), Incarnation: incarnation, Spec: s})
	require.NoError(t, err)
	t.Logf("%s started in %s", p.Worker(), time.Since(began))
	return p
}

type prediction struct {
	Digit       int
	Probability float64
}

// read has a worker read an example.
func read(t *testing.T, p *process.Process, number int) prediction {
	t.Helper()
	var example params
	setup.Call(t, p, "example", params{"number": number}, &example)
	var read []prediction
	began := time.Now()
	setup.Call(t, p, "predict", example, &read)
	t.Logf("predicted in %s", time.Since(began))
	require.Len(t, read, 1)
	return read[0]
}

// The model is the same in each process, so any worker gives the answer that one which was killed had given.
func TestWorkersReadDigitsAndOneServesWhileTheOtherIsReplaced(t *testing.T) {
	host, s := setup.Host(t, nil), pool(t)
	first, second := start(t, host, s, 0, 1), start(t, host, s, 1, 1)
	known := read(t, first, 7)
	require.Equal(t, 8, known.Digit)
	require.Greater(t, known.Probability, 0.5)
	require.EqualValues(t, 1, first.Counts()["images"])

	exit := setup.Kill(t, first)
	require.Equal(t, "SIGKILL", exit.Signal)
	require.Equal(t, known, read(t, second, 7))
	require.Equal(t, known, read(t, start(t, host, s, 0, 2), 7))
}

func TestAnImageThatIsNoneIsRefused(t *testing.T) {
	p := start(t, setup.Host(t, nil), pool(t), 0, 1)
	image := make([]any, 64)
	for i := range image {
		image[i] = 0
	}
	bright := append(append([]any{}, image[1:]...), 17)
	for name, images := range map[string]any{
		"one image": image, "no image": []any{}, "too short": []any{image[1:]}, "too bright": []any{bright},
		"text": []any{"0"}, "nothing": nil, "ragged": []any{image, image[1:]},
	} {
		_, err := p.Conn().Call(t.Context(), setup.Request(t, "predict", params{"images": images}))
		var failure *wire.RemoteError
		require.ErrorAs(t, err, &failure, name)
		require.Equal(t, "bad_image", failure.Code, "%s: %s", name, failure.Message)
	}
	_, err := p.Conn().Call(t.Context(), wire.Request{Method: "predict", Payload: []byte(`{"images": [[NaN]]}`)})
	require.Error(t, err)
	require.NoError(t, p.Probe(t.Context()))
}

func TestAWorkerWithABadModelDoesNotStart(t *testing.T) {
	s := pool(t)
	s.Start.Warmup[0].Params = []byte(`{"at_least": 1.0}`)
	_, err := setup.Host(t, nil).Start(t.Context(), process.Launch{Worker: "model/0", Incarnation: 1, Spec: s})
	require.ErrorIs(t, err, process.ErrStartFailed)
	require.ErrorContains(t, err, "of the held-out images right, less than 100.0%")
}
