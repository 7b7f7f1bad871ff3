// Roadrunner measures the calls per second of RoadRunner's pool, used as a Go library. It reads requests for
// measurements from stdin, so that its caller can alternate them with its own.
//
//	roadrunner WORKERS CORES COMMAND [ARGUMENT…]
//
// CORES is 0 or the number of cores over which the workers are bound, one core each, with the program taskset.
// A request is a line {"callers": 8, "context": "", "bytes": 100, "ms": 1000}, with the context and the number of bytes
// of a call; the result is a line {"per_second": 50000}.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roadrunner-server/pool/ipc/pipe"
	"github.com/roadrunner-server/pool/payload"
	"github.com/roadrunner-server/pool/pool"
	"github.com/roadrunner-server/pool/pool/static_pool"
	"go.uber.org/zap"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "roadrunner:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: roadrunner WORKERS CORES COMMAND [ARGUMENT…]")
	}
	workers, badWorkers := strconv.ParseUint(args[0], 10, 16)
	cores, badCores := strconv.ParseUint(args[1], 10, 16)
	if err := errors.Join(badWorkers, badCores); err != nil {
		return err
	}
	var started atomic.Uint64
	command := func([]string) *exec.Cmd {
		if cores == 0 {
			return exec.Command(args[2], args[3:]...)
		}
		core := strconv.FormatUint((started.Add(1)-1)%cores, 10)
		return exec.Command("taskset", append([]string{"-c", core}, args[2:]...)...)
	}
	ctx := context.Background()
	logger := zap.NewNop()
	p, err := static_pool.NewPool(ctx, command, pipe.NewPipeFactory(logger), &pool.Config{NumWorkers: workers}, logger)
	if err != nil {
		return fmt.Errorf("start the pool: %w", err)
	}
	defer p.Destroy(ctx)
	requests, results := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r struct {
			Callers, Bytes, MS int
			Context            string
		}
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		call := payload.Payload{Context: []byte(r.Context), Body: bytes.Repeat([]byte("x"), r.Bytes)}
		perSecond, err := measure(ctx, p, r.Callers, call, time.Duration(r.MS)*time.Millisecond)
		if err == nil {
			err = results.Encode(map[string]float64{"per_second": perSecond})
		}
		if err != nil {
			return err
		}
	}
}

// measure runs the callers; each calls again as soon as its last call returns.
func measure(ctx context.Context, p *static_pool.Pool, callers int, request payload.Payload, span time.Duration) (
	float64, error) {
	counts, failures := make([]int, callers), make([]error, callers)
	var group sync.WaitGroup
	began := time.Now()
	for i := range callers {
		group.Go(func() {
			for time.Since(began) < span && failures[i] == nil {
				failures[i] = call(ctx, p, request)
				counts[i]++
			}
		})
	}
	group.Wait()
	took := time.Since(began).Seconds()
	calls := 0
	for _, n := range counts {
		calls += n
	}
	return float64(calls) / took, errors.Join(failures...)
}

func call(ctx context.Context, p *static_pool.Pool, request payload.Payload) error {
	results, err := p.Exec(ctx, &request, make(chan struct{}, 1))
	if err != nil {
		return fmt.Errorf("call: %w", err)
	}
	result := <-results
	if result.Error() != nil {
		return fmt.Errorf("call: %w", result.Error())
	}
	if !bytes.Equal(result.Body(), request.Body) {
		return fmt.Errorf("sent %d bytes, got %d back", len(request.Body), len(result.Body()))
	}
	return nil
}
