package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

// waitFlags are the flags of a command that waits for its result.
type waitFlags struct {
	skip  bool
	limit time.Duration
}

// flags defines --no-wait and --wait-timeout; until completes "to wait".
func (w *waitFlags) flags(c *cobra.Command, limit time.Duration, until string) {
	c.Flags().BoolVar(&w.skip, "no-wait", false, "return immediately instead of waiting "+until)
	c.Flags().DurationVar(&w.limit, "wait-timeout", limit, "how long to wait "+until)
	checkFlags(c, func(*cobra.Command) error {
		if w.limit <= 0 {
			return usagef("--wait-timeout is %s; give a duration above zero, or --no-wait", w.limit)
		}
		return nil
	})
}

// awaitEnd waits until wait returns, for at most limit as await does, and calls show at intervals.
func (a *app) awaitEnd(ctx context.Context, limit time.Duration, wait func(context.Context) error,
	show func(context.Context), late func() string) error {
	waiting, cancel := context.WithCancel(ctx)
	defer time.AfterFunc(limit, cancel).Stop() // a deadline would have the SDK ask again and again just before it
	shown := sleep.Done(func() {
		for first := true; first || sleep.For(waiting.Done(), a.pollInterval); first = false {
			show(waiting)
		}
	})
	err := wait(waiting)
	ended := waiting.Err()
	cancel()
	<-shown
	switch {
	case err == nil || ended == nil:
		return err
	case ctx.Err() != nil: // wait's error may be Temporal's
		return ctx.Err()
	}
	return api.Errorf(codeTimeout, "%s", late())
}

// await polls until poll returns true. It polls again after CodeUnavailable, since agents may restart. It returns any
// other error of poll, the error of ctx, or after limit codeTimeout with the message of late, which says what to do.
func (a *app) await(ctx context.Context, limit time.Duration, poll func(context.Context) (bool, error),
	late func() string) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		request, cancel := a.request(bounded)
		done, err := poll(request)
		cancel()
		if err != nil && bounded.Err() == nil && api.CodeOf(err) != api.CodeUnavailable {
			return err
		}
		if err == nil && done {
			return nil
		}
		if !sleep.For(bounded.Done(), a.pollInterval) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return api.Errorf(codeTimeout, "%s", late())
		}
	}
}
