package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func (a *app) checkoutCommand() *cobra.Command {
	var o tempool.CheckoutOptions
	var wait time.Duration
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "checkout POOL[/N] --holder HOLDER",
		Short: "Take a lease on a free worker, or on a particular one",
		Long: `Take a lease: the exclusive right to one worker until it is given back with ctl checkin, or expires. What becomes of a worker
whose lease expires is lease.on_expiry in its pool.toml; by default it is replaced.`,
		Example: `  ctl checkout python --holder me
  ctl checkout python/0 --holder me --ttl 10m
  lease=$(ctl checkout python --holder me --wait 30s -o json | jq -r .id)`,
		Args:              exactly(argPoolOrWorker),
		ValidArgsFunction: a.completePoolsAndWorkers,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		name, slot, err := poolOrWorker(args[0])
		if err != nil {
			return err
		}
		o.Slot = slot
		lease, err := a.checkout(ctx, cp.Pool(name), o, wait)
		if err != nil {
			return waitHint(err, wait)
		}
		return a.printResult(lease, func(w io.Writer) error { return writeLease(w, &lease.Lease, a.now()) })
	})
	c.Flags().StringVar(&o.Holder, "holder", "", "who takes the lease, for people who ask")
	c.Flags().StringVar(&o.Session, "session", "", "the session the lease is for")
	c.Flags().DurationVar(&o.TTL, "ttl", 0, "how long the lease lasts (default: lease.ttl of the pool)")
	c.Flags().DurationVar(&wait, "wait", 0, "how long to wait for a worker to come free (default: not at all)")
	required(c, "holder")
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		switch flags := cmd.Flags(); {
		case flags.Changed("holder") && o.Holder == "":
			return usagef("--holder is empty; say who takes the lease")
		case flags.Changed("ttl") && o.TTL < time.Millisecond:
			return usagef("--ttl is %s; give at least 1ms", o.TTL)
		case wait < 0:
			return usagef("--wait is %s; give a time above zero", wait)
		}
		return check(cmd, args)
	}
	return c
}

func (a *app) checkout(ctx context.Context, p pool, o tempool.CheckoutOptions, wait time.Duration) (*tempool.Lease, error) {
	if wait == 0 {
		request, cancel := a.request(ctx)
		defer cancel()
		return p.TryCheckout(request, o)
	}
	o.Wait, o.NoRenew = wait, true // the lease outlives ctl
	lease, err := p.Checkout(ctx, o)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return lease, err
}

// waitHint adds to a refusal that may pass what to do about it.
func waitHint(err error, wait time.Duration) error {
	var refusal *api.Error
	if wait > 0 || !errors.As(err, &refusal) || !refusal.Code.Retryable() || refusal.Code == api.CodeUnavailable {
		return err
	}
	return api.Errorf(refusal.Code, "%s; --wait 30s waits for one to come free", refusal.Message)
}

// outcomeFlag is the value of --outcome.
type outcomeFlag api.Outcome

// String is part of pflag.Value.
func (o *outcomeFlag) String() string { return string(*o) }

// Type is part of pflag.Value: what help shows for the value.
func (o *outcomeFlag) Type() string { return "ok|error|close" }

// Set is part of pflag.Value.
func (o *outcomeFlag) Set(text string) error {
	switch api.Outcome(text) {
	case api.OutcomeOK, api.OutcomeError, api.OutcomeClose:
		*o = outcomeFlag(text)
		return nil
	}
	return fmt.Errorf("write ok, error or close")
}

// checkinResult is the result of ctl checkin.
type checkinResult struct {
	Lease  string          `json:"lease"`
	Worker string          `json:"worker"`
	State  lifecycle.State `json:"state"`
}

func (a *app) checkinCommand() *cobra.Command {
	how := outcomeFlag(api.OutcomeOK)
	var problem string
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "checkin LEASE",
		Short: "Give a lease back",
		Long: `Give a lease back and say how it went: ok, the worker is free again; error, it served badly and is degraded until a probe
passes; close, it must be replaced.`,
		Example: `  ctl checkin python.0.1.7
  ctl checkin python.0.1.7 --outcome error --error "answered with an empty page"
  ctl checkin python.0.1.7 --outcome close`,
		Args:              exactly(argLease),
		ValidArgsFunction: cobra.NoFileCompletions,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		ref, err := api.ParseLeaseID(args[0])
		if err != nil {
			return err
		}
		if err := a.checkin(ctx, cp, ref, api.CheckinRequest{LeaseID: args[0], Outcome: api.Outcome(how), Error: problem}); err != nil {
			return err
		}
		state, err := a.awaitCheckin(ctx, cp.Pool(ref.Pool), ref.Slot, args[0])
		if err != nil {
			return err
		}
		result := checkinResult{args[0], ref.Worker(), state}
		return a.printResult(result, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "lease %s is given back; worker %s is %s\n", result.Lease, result.Worker, result.State)
			return err
		})
	})
	c.Flags().Var(&how, "outcome", "how the lease went")
	c.Flags().StringVar(&problem, "error", "", "what went wrong, for the worker's history; with --outcome error or close")
	completeFlag(c, "outcome", string(api.OutcomeOK), string(api.OutcomeError), string(api.OutcomeClose))
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if problem != "" && api.Outcome(how) == api.OutcomeOK {
			return usagef("--error goes with --outcome error or --outcome close")
		}
		return check(cmd, args)
	}
	return c
}

// checkin gives a lease back, if it is the one that is out: the worker would only count any other.
func (a *app) checkin(ctx context.Context, cp controlPlane, ref api.LeaseRef, r api.CheckinRequest) error {
	request, cancel := a.request(ctx)
	defer cancel()
	state, err := cp.Pool(ref.Pool).State(request, ref.Slot)
	if err != nil {
		return err
	}
	if err := checkCurrent(r.LeaseID, state); err != nil {
		return err
	}
	return cp.Checkin(request, r)
}

// checkCurrent is the failure of a lease that is not out.
func checkCurrent(lease string, state api.WorkerState) error {
	switch {
	case state.Lease == nil:
		return api.Errorf(api.CodeLeaseFenced, "lease %s is not out: it was given back, has expired or never was; nothing is left to do (worker %s is %s)",
			lease, state.Worker, state.State)
	case state.Lease.ID != lease:
		return api.Errorf(api.CodeLeaseFenced, "lease %s is not out any more: worker %s is leased to %s now, as %s; nothing is left to do",
			lease, state.Worker, state.Lease.Holder, state.Lease.ID)
	}
	return nil
}

// awaitCheckin waits until a worker has taken its lease back, and is the state it is in then.
func (a *app) awaitCheckin(ctx context.Context, p pool, slot int, lease string) (lifecycle.State, error) {
	var state api.WorkerState
	err := a.await(ctx, a.timeout, func(ctx context.Context) (bool, error) {
		var err error
		state, err = p.State(ctx, slot)
		return err == nil && (state.Lease == nil || state.Lease.ID != lease), err
	})
	var up *waitTimeout
	if errors.As(err, &up) {
		return "", api.Errorf(codeTimeout, "lease %s is on its way back, but its worker has not taken it after %s; see whether its agents run", lease, formatDuration(a.timeout))
	}
	return state.State, err
}
