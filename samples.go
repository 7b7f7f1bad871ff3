package tempool

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

// SampleOptions select samples of workers.
type SampleOptions struct {
	// Workers are their numbers; nil is all workers of the pool.
	Workers []int
	// Gateways are the base URLs of those to ask; nil asks those of all hosts.
	Gateways []string
	// Unreachable is called for each gateway that does not answer; nil ignores them.
	Unreachable func(endpoint string, err error)
}

// RecentSamples returns the newest samples of workers of the pool, each worker's from each host that has some, sorted by worker. It costs one
// request to each gateway. It needs the right read. It fails with pool_not_found, and with the error of a gateway if none answers.
func (p *Pool) RecentSamples(ctx context.Context, o SampleOptions) ([]api.RecentSamples, error) {
	if err := p.validName(); err != nil {
		return nil, err
	}
	if o.Workers != nil && len(o.Workers) == 0 {
		return nil, nil
	}
	endpoints := o.Gateways
	if endpoints == nil {
		var err error
		if endpoints, _, err = p.logEndpoints(ctx); err != nil {
			return nil, err
		}
	}
	path := "/v1/pools/" + p.name + "/samples"
	if o.Workers != nil {
		numbers := make([]string, len(o.Workers))
		for i, slot := range o.Workers {
			numbers[i] = strconv.Itoa(slot)
		}
		path += "?workers=" + strings.Join(numbers, ",")
	}
	all, err := readAnswering(endpoints, o.Unreachable, func(endpoint string, take func(api.RecentSamples)) error {
		var answer []api.RecentSamples
		if err := p.client.askGateway(ctx, endpoint, transport.Request{Method: http.MethodGet, Path: path}, &answer); err != nil {
			return err
		}
		for _, one := range answer {
			if !one.Valid() {
				return api.Errorf(api.CodeUnavailable, "the samples of %s have lists of different lengths; update the agent at %s", one.Worker, endpoint)
			}
			take(one)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b api.RecentSamples) int { return strings.Compare(a.Worker, b.Worker) })
	return all, nil
}
