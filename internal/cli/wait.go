package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
)

// waitFlags holds the flags of a command that waits for what it asked for.
type waitFlags struct {
	skip  bool
	limit time.Duration
}

// flags defines --no-wait and --wait-timeout; what completes "to wait".
func (w *waitFlags) flags(c *cobra.Command, limit time.Duration, what string) {
	c.Flags().BoolVar(&w.skip, "no-wait", false, "return at once instead of waiting "+what)
	c.Flags().DurationVar(&w.limit, "wait-timeout", limit, "how long to wait "+what)
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if w.limit <= 0 {
			return usagef("--wait-timeout is %s; give a time above zero, or --no-wait", w.limit)
		}
		return check(cmd, args)
	}
}

// waitTimeout is the end of a wait whose time was up.
type waitTimeout struct {
	limit time.Duration
	last  error // of the last look, if it was not answered
}

func (t *waitTimeout) Error() string { return fmt.Sprintf("not done after %s", t.limit) }

func (t *waitTimeout) Unwrap() error { return t.last }

// await looks until look reports true. A look that is not answered is repeated: agents restart. It ends with look's error, with
// *waitTimeout after limit, or with ctx's error.
func (a *app) await(ctx context.Context, limit time.Duration, look func(context.Context) (bool, error)) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(a.pollInterval)
	defer tick.Stop()
	var last error
	for {
		request, cancel := a.request(bounded)
		done, err := look(request)
		cancel()
		if err != nil && bounded.Err() == nil && api.CodeOf(err) != api.CodeUnavailable {
			return err
		}
		if err == nil && done {
			return nil
		}
		if err != nil || bounded.Err() == nil {
			last = err
		}
		select {
		case <-bounded.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &waitTimeout{limit, last}
		case <-tick.C:
		}
	}
}
