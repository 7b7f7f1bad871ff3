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
	GatewayOptions
	// Workers are their numbers; nil is all workers of the pool.
	Workers []int
}

// GatewayOptions select the gateways that are asked.
type GatewayOptions struct {
	// Gateways are the base URLs of those to ask; nil asks those of all hosts.
	Gateways []string
	// Unreachable is called for each gateway that does not answer; nil ignores them.
	Unreachable func(endpoint string, err error)
}

// RecentSamples returns the newest samples of workers of the pool, each worker's from each host that has some, sorted
// by worker. It costs one request to each gateway. It needs the right read. It fails with pool_not_found, and with the
// error of a gateway if none answers.
func (p *Pool) RecentSamples(ctx context.Context, o SampleOptions) ([]api.RecentSamples, error) {
	if o.Workers != nil && len(o.Workers) == 0 {
		return nil, p.validName()
	}
	path := "/samples"
	if o.Workers != nil {
		numbers := make([]string, len(o.Workers))
		for i, slot := range o.Workers {
			numbers[i] = strconv.Itoa(slot)
		}
		path += "?workers=" + strings.Join(numbers, ",")
	}
	all, err := askGateways(ctx, p, path, o.GatewayOptions,
		func(answer []api.RecentSamples) ([]api.RecentSamples, error) {
			for _, one := range answer {
				if !one.Valid() {
					return nil, errUneven("the samples of " + one.Worker)
				}
			}
			return answer, nil
		})
	slices.SortStableFunc(all, func(a, b api.RecentSamples) int { return strings.Compare(a.Worker, b.Worker) })
	return all, err
}

// RecentQueue returns the figures of the pool's last hour at each gateway, sorted by host. It costs one request to each
// gateway. It needs the right read. It fails with pool_not_found, and with the error of a gateway if none answers.
func (p *Pool) RecentQueue(ctx context.Context, o GatewayOptions) ([]api.RecentQueue, error) {
	all, err := askGateways(ctx, p, "/queue", o,
		func(answer api.RecentQueue) ([]api.RecentQueue, error) {
			if !answer.Valid() {
				return nil, errUneven("the queue at " + answer.Host)
			}
			return []api.RecentQueue{answer}, nil
		})
	slices.SortStableFunc(all, func(a, b api.RecentQueue) int { return strings.Compare(a.Host, b.Host) })
	return all, err
}

func errUneven(what string) *api.Error {
	return api.Errorf(api.CodeUnavailable, "%s has lists of a wrong length; update its agent", what)
}

// askGateways gets a path below that of the pool from the gateways, and joins what parts takes from each answer.
func askGateways[A, T any](ctx context.Context, p *Pool, path string, o GatewayOptions,
	parts func(A) ([]T, error)) ([]T, error) {
	if err := p.validName(); err != nil {
		return nil, err
	}
	if o.Gateways == nil {
		var err error
		if o.Gateways, _, err = p.logEndpoints(ctx); err != nil {
			return nil, err
		}
	}
	return readAnswering(o.Gateways, o.Unreachable, func(endpoint string) ([]T, error) {
		var answer A
		if err := p.client.askGateway(ctx, endpoint,
			transport.Request{Method: http.MethodGet, Path: "/v1/pools/" + p.name + path}, &answer); err != nil {
			return nil, err
		}
		return parts(answer)
	})
}
