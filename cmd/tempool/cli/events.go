package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
)

func (a *app) eventsCommand() *cobra.Command {
	var o tempool.EventOptions
	var since string
	c := &cobra.Command{
		Use:   "events [POOL]",
		Short: "Show what happened at the agents, and follow it",
		Long: `Show the events that the agents hold, for one pool or all, ordered by time: transitions of workers,
starts and ends of processes, leases. -f shows new events, including those of agents that start later; with --since it
first shows earlier ones.

An agent holds its newest 8,192 events in memory. tempool history POOL/N shows what a worker did before. docs/events.md
lists the types. -o json prints each event as a CloudEvent, one per line.`,
		Example: `  tempool events
  tempool events python -f
  tempool events --since 10m --type 'lease.*,worker.transitioned'
  tempool events -f -o json | jq -r 'select(.type == "process.ended") | .data.reason'`,
	}
	c.Flags().BoolVarP(&o.Follow, "follow", "f", false, "continue with new events until interrupted")
	c.Flags().StringSliceVar(&o.Types, "type", nil, "only events of these types; * matches any text, as in lease.*")
	c.Flags().StringVar(&since, "since", "",
		"only events since then: a duration such as 10m, or a time such as 2026-01-31T12:00:00Z")
	completeFlag(c, "type", api.EventTypes()...)
	checkFlags(c, func(*cobra.Command) error {
		if _, err := events.ParseSince(since, time.Time{}); err != nil {
			return usagef("--%s", message(err))
		}
		return nil
	})
	return a.gatewaysCommand(c, func(ctx context.Context, cp controlPlane, args []string) error {
		o.Since, _ = events.ParseSince(since, a.now()) // checkFlags has parsed it
		o.Pool = strings.Join(args, "")
		return a.printEvents(ctx, cp, o)
	})
}

// printEvents prints events as they come. An agent that cannot be read is a warning while events of others may come,
// and else the failure.
func (a *app) printEvents(ctx context.Context, cp controlPlane, o tempool.EventOptions) error {
	reading := ctx
	if !o.Follow {
		limited, cancel := a.request(ctx)
		defer cancel()
		reading = limited
	}
	var failure error // the last, or with -f one after which no event came
	printed := 0
	for event, err := range cp.Events(reading, o) {
		switch {
		case err == nil:
			if err := a.printEvent(event); err != nil {
				return err
			}
			if printed++; o.Follow {
				failure = nil
			}
			continue
		case api.CodeOf(err) == api.CodeInvalid:
			return err // every agent refuses it
		case o.Follow:
			a.warn(message(err))
		}
		failure = err
	}
	switch {
	case failure == nil:
	case o.Follow && ctx.Err() == nil: // every agent refuses
		return warnedError{failure}
	case !o.Follow && printed == 0: // every agent fails
		return failure
	case !o.Follow:
		a.warn(message(failure))
	}
	if printed == 0 && o.Pool != "" && !o.Follow { // perhaps the name is wrong
		_, err := send(ctx, a, cp.Pool(o.Pool).Roster)
		return err
	}
	return nil
}

func (a *app) printEvent(event api.Event) error {
	if a.format == formatJSON {
		return writeJSONLine(a.out, event)
	}
	_, err := fmt.Fprintf(a.out, "%s  %-20s  %-12s  %s\n", event.Time.UTC().Format("2006-01-02T15:04:05.000Z"), event.Type,
		events.Subject(event.Source),
		printable(oneLine(events.Summary(event), maxEventRunes)))
	return err
}

// maxEventRunes bounds what a line says about an event; -o json has all of it.
const maxEventRunes = 240
