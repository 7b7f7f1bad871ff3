package sdk

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tempool/tempool/process/wire"
)

func (w *Worker) unhealthy(reason string) error {
	c := w.serving.Load()
	if c == nil {
		return errors.New("call Unhealthy after Run has started; before that, return an error from an OnStart function")
	}
	report, err := json.Marshal(map[string]string{"reason": cut(reason, wire.MaxReason)})
	if err != nil {
		return err
	}
	return c.send(wire.Frame{Type: wire.FrameNotify, Method: wire.UnhealthyMethod, Payload: report})
}

// ping answers a ping: with an error if a function of OnHealth fails.
func (c *connection) ping(id uint32) error {
	hooks := c.worker.onHealth
	if len(hooks) == 0 {
		return c.send(wire.Frame{Type: wire.FramePong, ID: id})
	}
	c.calls.Go(func() {
		answer := wire.Frame{Type: wire.FramePong, ID: id}
		for _, hook := range hooks {
			if err := guarded(func() error { return hook(c.life) }); err != nil {
				answer = wire.Frame{Type: wire.FrameError, ID: id, Payload: errorPayload(context.Background(), err)}
				break
			}
		}
		if err := c.send(answer); err != nil && c.life.Err() == nil {
			c.of.logf("a ping is not answered: %v", err)
		}
	})
	return nil
}
