package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func (a *app) checkoutCommand() *cobra.Command {
	var o tempool.CheckoutOptions
	var wait time.Duration
	c := a.controlPlaneCommand(withNames(&cobra.Command{
		Use:   "checkout POOL[/N] --holder HOLDER",
		Short: "Lease a free worker, or a particular one",
		Long: `Lease a worker: the holder has the exclusive right to it until tempool checkin releases the lease or the
lease expires. The pool replaces a worker whose lease expires, unless lease.on_expiry in its pool.toml says
otherwise.`,
		Example: `  tempool checkout python --holder me
  tempool checkout python/0 --holder me --ttl 10m
  lease=$(tempool checkout python --holder me --wait 30s -o json | jq -r .id)`,
	}), func(ctx context.Context, cp controlPlane, args []string) error {
		name, slot, _ := poolOrWorker(args[0]) // checkArguments has parsed it
		o.Slot = slot
		lease, err := a.checkout(ctx, cp.Pool(name), o, wait)
		if err != nil {
			return waitHint(err, wait)
		}
		return a.printResult(lease, func(text *strings.Builder) { writeLease(text, &lease.Lease, a.now()) })
	})
	c.Flags().StringVar(&o.Holder, "holder", "", "name of the lease's holder, as other users see it")
	c.Flags().StringVar(&o.Session, "session", "", "session of the lease")
	c.Flags().StringVar(&o.Key, "key", "", "whose lease it is, for a pool with isolation.by = \"key\"")
	c.Flags().DurationVar(&o.TTL, "ttl", 0, "how long the lease lasts (default: lease.ttl of the pool)")
	c.Flags().DurationVar(&wait, "wait", 0, "how long to wait for a free worker (default: do not wait)")
	required(c, "holder")
	checkFlags(c, func(cmd *cobra.Command) error {
		switch flags := cmd.Flags(); {
		case flags.Changed("holder") && o.Holder == "":
			return usagef("--holder is empty; name the holder of the lease")
		case flags.Changed("ttl") && o.TTL < time.Millisecond:
			return usagef("--ttl is %s; give at least 1ms", o.TTL)
		case wait < 0:
			return usagef("--wait is %s; give a duration above zero", wait)
		}
		return nil
	})
	return c
}

func (a *app) checkout(ctx context.Context, p pool, o tempool.CheckoutOptions,
	wait time.Duration) (*tempool.Lease, error) {
	if wait == 0 {
		return ask(ctx, a, p.TryCheckout, o)
	}
	o.Wait, o.NoRenew = wait, true // the lease outlives tempool
	lease, err := p.Checkout(ctx, o)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return lease, err
}

// waitHint adds --wait to the error of a checkout that may succeed later.
func waitHint(err error, wait time.Duration) error {
	code := api.CodeOf(err)
	if wait > 0 || !code.Retryable() || code == api.CodeUnavailable {
		return err
	}
	return api.Errorf(code, "%s; add --wait 30s to wait for a free worker", api.MessageOf(err))
}

// writeLease writes the table of tempool checkout.
func writeLease(text *strings.Builder, lease *api.Lease, now time.Time) {
	rows := [][]string{
		{"Worker", lease.Worker},
		{"Holder", lease.Holder},
		{"Host", orDash(lease.Host)},
		{"Endpoint", orDash(lease.Endpoint)},
		{"Address", lease.Address},
		{"Session", lease.Session},
		{"Token", lease.Token},
		{"Expires", fmt.Sprintf("%s (in %s)", lease.ExpiresAt.UTC().Format(time.RFC3339),
			formatDuration(lease.ExpiresAt.Sub(now)))},
		{"Release", "tempool checkin " + lease.ID},
	}
	rows = slices.DeleteFunc(rows, func(row []string) bool { return row[1] == "" })
	table(text, []string{"Lease", lease.ID}, rows)
}

// checkinResult is the result of tempool checkin.
type checkinResult struct {
	Lease  string          `json:"lease"`
	Worker string          `json:"worker"`
	State  lifecycle.State `json:"state"`
}

func (a *app) checkinCommand() *cobra.Command {
	outcome := api.OutcomeOK
	var problem string
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "checkin LEASE",
		Short: "Release a lease",
		Long: `Release a lease and report its outcome: with ok the worker is free again; with error it is degraded
until a probe passes; with close it is replaced.`,
		Example: `  tempool checkin python.0.1.7
  tempool checkin python.0.1.7 --outcome error --error "answered with an empty page"
  tempool checkin python.0.1.7 --outcome close`,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		id, _ := api.SplitLeaseID(args[0]) // of ID or ID~TOKEN, as both are printed; tempool needs no token
		ref, _ := api.ParseLeaseID(id)     // checkArguments has parsed it
		released, err := a.checkin(ctx, cp, ref, api.CheckinRequest{LeaseID: id, Outcome: outcome, Error: problem})
		if err != nil {
			return err
		}
		result := checkinResult{id, ref.Worker(), released.State}
		return a.printMessage(result, "released lease %s; worker %s is %s", result.Lease, result.Worker, result.State)
	})
	outcomes := []string{string(api.OutcomeOK), string(api.OutcomeError), string(api.OutcomeClose)}
	c.Flags().Var(choice[api.Outcome]{&outcome, outcomes}, "outcome", "outcome of the lease")
	completeFlag(c, "outcome", outcomes...)
	c.Flags().StringVar(&problem, "error", "", "what went wrong, for the worker's history; with --outcome error or close")
	checkFlags(c, func(*cobra.Command) error {
		if problem != "" && outcome == api.OutcomeOK {
			return usagef("--error needs --outcome error or --outcome close")
		}
		return nil
	})
	return c
}

// checkin releases the lease that the worker holds now. It fails with CodeLeaseFenced for any other lease, which the
// worker would ignore.
func (a *app) checkin(ctx context.Context, cp controlPlane, ref api.LeaseRef,
	r api.CheckinRequest) (none api.CheckinResult, err error) {
	state, err := ask(ctx, a, cp.Pool(ref.Pool).State, ref.Slot)
	switch {
	case api.CodeOf(err) == api.CodeUnavailable && ctx.Err() == nil: // a signal needs no agent
		signal, cancel := a.request(ctx)
		defer cancel()
		if failure := cp.Checkin(signal, r); failure != nil {
			return none, failure
		}
		return none, api.Errorf(api.CodeUnavailable,
			"sent the release of lease %s, but no agent answers, so it takes effect when one runs again "+
				"(%s)", r.LeaseID, message(err))
	case err != nil:
		return none, err
	case state.Lease == nil:
		return none, api.Errorf(api.CodeLeaseFenced,
			"lease %s does not exist, was released or has expired; nothing to do (worker %s is %s)",
			r.LeaseID, state.Worker, state.State)
	case state.Lease.ID != r.LeaseID:
		return none, api.Errorf(api.CodeLeaseFenced,
			"lease %s is no longer current: worker %s is leased to %s as %s; nothing to do",
			r.LeaseID, state.Worker, state.Lease.Holder, state.Lease.ID)
	}
	return ask(ctx, a, cp.CheckinNow, r)
}
