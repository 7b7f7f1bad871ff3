package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// outcomeFlag is the value of --outcome.
type outcomeFlag api.Outcome

// String is part of pflag.Value.
func (o *outcomeFlag) String() string { return string(*o) }

// Type is part of pflag.Value: the name of the value in help texts.
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
	outcome := outcomeFlag(api.OutcomeOK)
	var problem string
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "checkin LEASE",
		Short: "Release a lease",
		Long: `Release a lease and report its outcome: with ok the worker is free again; with error it is degraded until a probe passes; with close
it is replaced.`,
		Example: `  ctl checkin python.0.1.7
  ctl checkin python.0.1.7 --outcome error --error "answered with an empty page"
  ctl checkin python.0.1.7 --outcome close`,
		Args:              exactly(argLease),
		ValidArgsFunction: cobra.NoFileCompletions,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		args[0] = leaseID(args[0])
		ref, err := api.ParseLeaseID(args[0])
		if err != nil {
			return err
		}
		if err := a.checkin(ctx, cp, ref, api.CheckinRequest{LeaseID: args[0], Outcome: api.Outcome(outcome), Error: problem}); err != nil {
			return err
		}
		state, err := a.awaitCheckin(ctx, cp.Pool(ref.Pool), ref.Slot, args[0])
		if err != nil {
			return err
		}
		result := checkinResult{args[0], ref.Worker(), state}
		return a.printMessage(result, "released lease %s; worker %s is %s", result.Lease, result.Worker, result.State)
	})
	c.Flags().Var(&outcome, "outcome", "outcome of the lease")
	c.Flags().StringVar(&problem, "error", "", "what went wrong, for the worker's history; with --outcome error or close")
	completeFlag(c, "outcome", string(api.OutcomeOK), string(api.OutcomeError), string(api.OutcomeClose))
	checkFlags(c, func(*cobra.Command) error {
		if problem != "" && api.Outcome(outcome) == api.OutcomeOK {
			return usagef("--error needs --outcome error or --outcome close")
		}
		return nil
	})
	return c
}

// checkin releases the lease that the worker holds now. It fails for any other lease, which the worker would ignore.
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

// checkCurrent returns CodeLeaseFenced for a lease that is not the worker's current one.
func checkCurrent(lease string, state api.WorkerState) error {
	switch {
	case state.Lease == nil:
		return api.Errorf(api.CodeLeaseFenced, "lease %s does not exist, was released or has expired; nothing to do (worker %s is %s)",
			lease, state.Worker, state.State)
	case state.Lease.ID != lease:
		return api.Errorf(api.CodeLeaseFenced, "lease %s is no longer current: worker %s is leased to %s as %s; nothing to do",
			lease, state.Worker, state.Lease.Holder, state.Lease.ID)
	}
	return nil
}

// awaitCheckin waits until the worker no longer has the lease, and returns its state.
func (a *app) awaitCheckin(ctx context.Context, p pool, slot int, lease string) (lifecycle.State, error) {
	var state api.WorkerState
	err := a.await(ctx, a.timeout, func(ctx context.Context) (bool, error) {
		var err error
		state, err = p.State(ctx, slot)
		return err == nil && (state.Lease == nil || state.Lease.ID != lease), err
	})
	var timeout *waitTimeout
	if errors.As(err, &timeout) {
		return "", api.Errorf(codeTimeout, "released lease %s, but its worker has not processed the release after %s; check that the agents are running", lease, formatDuration(a.timeout))
	}
	return state.State, err
}
