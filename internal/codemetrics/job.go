// Package codemetrics is the job that comes with Tempool: it measures every Python file it is given on the workers of a pool, each
// under a lease, and adds the results up with each file counted exactly once, whatever becomes of the workers meanwhile.
package codemetrics

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// Defaults of Config.
const (
	DefaultMethod      = "measure"
	DefaultBatchFiles  = 25
	DefaultBatchBytes  = 256 << 10
	DefaultCallTimeout = 20 * time.Second
	DefaultTTL         = time.Minute
	DefaultMaxAttempts = 5
	DefaultPatience    = 2 * time.Minute
	DefaultTop         = 5
)

// Config says what to measure and where. Client, Pool and Files have no default.
type Config struct {
	Client *tempool.Client
	Pool   string
	// Files are paths that the pool's workers can read.
	Files []string
	// Holder is who the leases are for. Default: "codemetrics".
	Holder string
	// Method is the workers' method: it takes {"paths": […], "top": n} and answers with one FileMeasure for each path, in order.
	Method string
	// Hands is how many leases are used at one time. Default: the size of the pool.
	Hands int
	// BatchFiles and BatchBytes bound what one call measures; a file above BatchBytes goes alone.
	BatchFiles int
	BatchBytes int64
	// CallTimeout bounds one call.
	CallTimeout time.Duration
	// TTL is what leases last unless renewed, at least twice CallTimeout.
	TTL time.Duration
	// MaxAttempts is how many calls about one file alone may break off before the job fails. A batch that breaks off is halved
	// first, so that the file to blame is found.
	MaxAttempts int
	// Patience is how long the job goes on without one batch done.
	Patience time.Duration
	// Top is how many of the most complex functions the Summary names; negative for none.
	Top int
	// Progress, if set, is told after each batch and each break, by one goroutine at a time. It should return soon.
	Progress func(Progress)
}

// Progress is how far a job is.
type Progress struct {
	Files, Total int
	Bytes        int64
	Repeated     int // calls that broke off so far
	Leases       int // held now
}

func (c Config) complete() (Config, error) {
	defaults := func(n *int, otherwise int) {
		if *n == 0 {
			*n = otherwise
		}
	}
	defaults(&c.BatchFiles, DefaultBatchFiles)
	defaults(&c.MaxAttempts, DefaultMaxAttempts)
	defaults(&c.Top, DefaultTop)
	c.Top = max(0, c.Top)
	if c.BatchBytes == 0 {
		c.BatchBytes = DefaultBatchBytes
	}
	for d, otherwise := range map[*time.Duration]time.Duration{&c.CallTimeout: DefaultCallTimeout, &c.TTL: DefaultTTL, &c.Patience: DefaultPatience} {
		if *d == 0 {
			*d = otherwise
		}
	}
	if c.Method == "" {
		c.Method = DefaultMethod
	}
	if c.Holder == "" {
		c.Holder = "codemetrics"
	}
	switch {
	case c.Hands < 0 || c.BatchFiles < 0 || c.BatchBytes < 0 || c.MaxAttempts < 0 || c.CallTimeout < 0 || c.Patience < 0:
		return c, api.Errorf(api.CodeInvalid, "the job's numbers must not be below zero")
	case c.TTL < 2*c.CallTimeout:
		return c, api.Errorf(api.CodeInvalid, "leases of %s are too short for calls of %s; give them twice the time", c.TTL, c.CallTimeout)
	}
	return c, nil
}

// Run measures all files and returns their sum. It leaves no lease behind. A worker that dies, a lease that ends and a gateway that
// goes away cost the calls they break off, which are made again, and nothing else; only a batch whose whole answer has arrived
// is counted. Run fails when one file breaks MaxAttempts calls, which the error then names, when nothing gets done for
// Patience, when the pool is not there, and when ctx ends; the Summary then says how far it came.
func Run(ctx context.Context, config Config) (Summary, error) {
	config, err := config.complete()
	if err != nil {
		return Summary{}, err
	}
	return run(ctx, config, &poolLeases{client: config.Client, pool: config.Client.Pool(config.Pool), holder: config.Holder, ttl: config.TTL})
}

// job is one run.
type job struct {
	config Config
	leases leases
	queue  *queue
	fail   context.CancelCauseFunc
	moved  chan struct{} // gets a token when a batch was done

	mu      sync.Mutex
	tally   *tally
	held    int
	total   int
	trouble error // the newest, for the sentence when patience ends
}

func run(ctx context.Context, config Config, leases leases) (Summary, error) {
	began := time.Now()
	batches := pack(config.Files, config.BatchFiles, config.BatchBytes)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	j := &job{
		config: config, leases: leases, queue: newQueue(batches), fail: fail,
		moved: make(chan struct{}, 1), tally: newTally(config.Top),
	}
	for _, b := range batches {
		j.total += len(b.paths)
	}
	hands := config.Hands
	if hands == 0 && len(batches) > 0 {
		var err error
		if hands, err = leases.size(ctx); err != nil {
			return Summary{}, err
		}
	}
	var working sync.WaitGroup
	for range min(hands, len(batches)) {
		working.Go(func() { j.hand(ctx) })
	}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		working.Wait()
	}()
	j.watch(idle)
	j.mu.Lock()
	defer j.mu.Unlock()
	summary := j.tally.total()
	summary.Took = time.Since(began)
	select {
	case <-j.queue.done:
		return summary, nil
	default:
		return summary, context.Cause(ctx)
	}
}

// watch waits until the hands have ended, and ends them when nothing moves for too long.
func (j *job) watch(idle <-chan struct{}) {
	patience := time.NewTimer(j.config.Patience)
	defer patience.Stop()
	for {
		select {
		case <-idle:
			return
		case <-j.moved:
			patience.Reset(j.config.Patience)
		case <-patience.C:
			j.mu.Lock()
			trouble := j.trouble
			j.mu.Unlock()
			if trouble == nil {
				trouble = api.ErrNoWorkers
			}
			j.fail(api.Errorf(api.CodeQueueTimeout, "no file was measured for %s; ctl ps %s shows how the workers fare: %w", j.config.Patience, j.config.Pool, trouble))
		}
	}
}

// note remembers the newest trouble.
func (j *job) note(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trouble = err
}

// count adds the answer to a batch and tells of it.
func (j *job) count(b batch, measures []FileMeasure) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.tally.add(b, measures); err != nil {
		failure := api.Errorf(api.CodeWorkerError, "%w", err)
		failure.Started = true
		return failure
	}
	j.tell()
	select {
	case j.moved <- struct{}{}:
	default: // a token that nobody has read yet says the same
	}
	return nil
}

// hold counts the leases that are out.
func (j *job) hold(more int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held += more
	if more > 0 {
		j.tally.summary.Leases += more
	}
}

// tell is called with mu held.
func (j *job) tell() {
	if j.config.Progress == nil {
		return
	}
	s := j.tally.summary
	j.config.Progress(Progress{Files: s.Files, Total: j.total, Bytes: s.Bytes, Repeated: s.Repeated, Leases: j.held})
}

// tooOften is the end of a job that one file breaks.
func tooOften(b batch, cause error) error {
	return fmt.Errorf("%s could not be measured in %d calls; look at the file, or leave it out: %w", b.paths[0], b.failures, cause)
}
