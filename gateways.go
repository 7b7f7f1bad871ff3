package tempool

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/balance"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/internal/transport"
)

// A request that every gateway rejected is repeated in rounds over all gateways, with a refresh of the roster in
// between.
const (
	maxRounds   = 4
	roundPause  = 50 * time.Millisecond
	roundGrowth = 4
)

// poolRequest is a request that any gateway of a pool may answer.
type poolRequest struct {
	send func(endpoint string) (*transport.Reply, error)
	// retryElsewhere reports whether another gateway may answer after this failure.
	retryElsewhere func(error) bool
	body           transport.Body
}

// tryGateways sends a request to one gateway after another until one answers, in rounds.
func (p *Pool) tryGateways(ctx context.Context, r poolRequest) (*transport.Reply, error) {
	if err := cmp.Or(p.validName(), r.body.Err()); err != nil {
		return nil, err
	}
	balancer := p.balancer()
	pause, asked := roundPause, false
	for round := 1; ; round++ {
		reply, err := r.tryEach(ctx, p.client, balancer)
		if api.CodeOf(err) == api.CodePoolNotFound {
			p.client.forgetBalancer(p.name)
		}
		if err == nil || !retryRound(err) || round == maxRounds || r.body.Consumed() {
			return reply, err
		}
		if !asked && api.CodeOf(err) == api.CodeNoWorkers {
			if asked = true; p.awaitFirstWorker(ctx) {
				round = 1
			}
		}
		if !sleep.For(ctx.Done(), pause/2+rand.N(pause)) || balancer.Refresh(ctx) != nil {
			return nil, err
		}
		pause *= roundGrowth
	}
}

// tryEach sends the request to each gateway once, the best first, until one answers. Its error is that of the last
// gateway that was reached.
func (r poolRequest) tryEach(ctx context.Context, c *Client, balancer *balance.Balancer) (*transport.Reply, error) {
	tried := map[string]bool{}
	var failure error
	for {
		endpoint, err := balancer.Acquire(ctx, tried)
		if err != nil || endpoint == nil {
			return nil, cmp.Or(failure, err)
		}
		reply, err := r.send(endpoint.URL())
		if err == nil {
			reply.OnClose(func() { balancer.Release(endpoint, nil) })
			return reply, nil
		}
		balancer.Release(endpoint, err)
		if !r.retryElsewhere(err) || r.body.Consumed() || ctx.Err() != nil {
			return nil, err
		}
		tried[endpoint.URL()] = true
		balancer.Add(c.referrals(ctx, endpoint.URL(), err))
		// a gateway's own error says more than a lost connection
		if failure == nil || api.CodeOf(err) != api.CodeUnavailable {
			failure = err
		}
	}
}

// rosterTimeout bounds a look into the roster of a gateway that referred to others.
const rosterTimeout = 10 * time.Second

// referrals lists the gateways to which an error of the gateway from refers. A worker's own answer can look like such
// an error and name any address, so where a token would go along, only those in that gateway's roster count.
func (c *Client) referrals(ctx context.Context, from string, err error) []string {
	others := transport.OtherGateways(err)
	if len(others) == 0 || !c.transport.SendsToken(ctx) {
		return others
	}
	var roster []api.Worker
	if c.askGateway(ctx, from, transport.Request{Method: http.MethodGet, Path: "/v1/workers", Timeout: rosterTimeout},
		&roster) != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(others), func(url string) bool {
		return !slices.ContainsFunc(roster, func(w api.Worker) bool { return w.Endpoint == url })
	})
}

// retryRound reports whether a further round, or another gateway, may succeed after err.
func retryRound(err error) bool {
	return !transport.MayHaveStarted(err) &&
		(api.CodeOf(err) == api.CodeUnavailable || api.CodeOf(err) == api.CodeNoWorkers)
}

// balancer returns the balancer of the pool's calls and checkouts.
func (p *Pool) balancer() *balance.Balancer {
	c := p.client
	if c.fixed != nil {
		return c.fixed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.balancers[p.name]
	if b == nil {
		b = balance.New(c.Pool(p.name).Running, c.goBackground)
		c.balancers[p.name] = b
	}
	return b
}

// forgetBalancer drops the balancer of a pool that does not exist.
func (c *Client) forgetBalancer(pool string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.balancers, pool)
}
