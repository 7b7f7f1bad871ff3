package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestAClientAsksAWorkerThatDoesNotAnswerForAWhile(t *testing.T) {
	p := newPoolState(&Dispatcher{}, "p")
	w := &waitingClient{}
	p.clients.waiting = []*waitingClient{w}
	began := time.Now()
	unanswered := api.Errorf(api.CodeUnavailable, "no answer")
	p.answerLocked(w, "p/0", nil, began, unanswered)
	p.answerLocked(w, "p/0", nil, began.Add(controlTimeout), unanswered)
	p.clients.endPins(began.Add(pinLimit - 1))
	require.Equal(t, "p/0", w.worker)
	require.Nil(t, p.clients.first())
	p.clients.endPins(began.Add(pinLimit))
	require.Empty(t, w.worker)
	require.Same(t, w, p.clients.first())
}
