package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

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
		args[0] = leaseID(args[0])
		ref, _ := api.ParseLeaseID(args[0]) // checkArguments has parsed it
		released, err := a.checkin(ctx, cp, ref, api.CheckinRequest{LeaseID: args[0], Outcome: outcome, Error: problem})
		if err != nil {
			return err
		}
		result := checkinResult{args[0], ref.Worker(), released.State}
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
