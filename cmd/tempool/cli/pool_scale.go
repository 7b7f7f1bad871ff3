package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
)

// scaleOff stops the size of a pool from following the demand.
const scaleOff = "off"

func (a *app) poolScaleCommand() *cobra.Command {
	var reason string
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "scale POOL " + argSize,
		Short: "Set the number of workers of a pool, or the bounds within which it follows demand",
		Long: `Set the number of workers of a pool and return immediately. New workers start in the background; surplus
workers drain and stop, those out of service first, then those without a lease.

MIN..MAX makes the number follow demand within these bounds, which replace scale.min and scale.max of the spec. A
number then sets the size within the bounds, and the size follows demand afterwards. "off" keeps the number of workers
as it is in the spec.`,
		Example: `  tempool pool scale python 8
  tempool pool scale python 2..20
  tempool pool scale python off
  tempool pool scale python 2 --reason "the night" -o json`,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		name := args[0]
		request, _ := parseScale(args[1]) // checkArguments has parsed it
		request.Reason, request.By = reason, operator()
		result, err := ask(ctx, a, cp.Pool(name).ScaleTo, request)
		if err != nil {
			return err
		}
		if request.Bounds != nil && result.Bounds != nil {
			return a.printMessage(result, "pool %s: %d to %s, by demand; run tempool pool status %s to follow", name,
				result.Bounds.Min, plural(result.Bounds.Max, "worker"), name)
		}
		if result.From == result.To {
			return a.printMessage(result, "pool %s: keeps %s", name, plural(result.To, "worker"))
		}
		return a.printMessage(result, "pool %s: scaling from %s to %d; run tempool ps %s to follow", name,
			plural(result.From, "worker"), result.To, name)
	})
	c.Flags().StringVar(&reason, "reason", "", "reason to record in the event of the change")
	return c
}

// parseScale parses N, MIN..MAX or off.
func parseScale(text string) (api.ScaleRequest, error) {
	if text == scaleOff {
		return api.ScaleRequest{Bounds: &api.ScaleBounds{}}, nil
	}
	low, high, isRange := strings.Cut(text, "..")
	if !isRange {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 {
			return api.ScaleRequest{}, usagef("%q is not a number of workers; give a whole number of at least 1, or stop the "+
				"pool to have none", text)
		}
		return api.ScaleRequest{Size: size}, nil
	}
	least, errMin := strconv.Atoi(low)
	most, errMax := strconv.Atoi(high)
	if errMin != nil || errMax != nil || least < 0 || most < 1 || least > most {
		return api.ScaleRequest{}, usagef("%q is not a range of workers; write MIN..MAX, such as 2..20", text)
	}
	return api.ScaleRequest{Bounds: &api.ScaleBounds{Min: least, Max: most}}, nil
}

// shownDecisions bounds how many decisions tempool pool status shows; -o json has more.
const shownDecisions = 5

// writeScaling writes the newest changes of size by demand.
func writeScaling(text *strings.Builder, s *api.ScaleStatus) {
	if s == nil || len(s.Decisions) == 0 {
		return
	}
	text.WriteString("\n")
	tableOf(text, []string{"SCALED AT", "WORKERS", "REASON"}, s.Decisions[max(0, len(s.Decisions)-shownDecisions):],
		func(d api.ScaleDecision) []string {
			change := fmt.Sprintf("%d to %d", d.From, d.To)
			if d.Observed {
				change += " (only recorded)"
			}
			return []string{d.At.Local().Format("2006-01-02 15:04:05"), change, oneLine(d.Reason, 2*maxReasonRunes)}
		})
}
