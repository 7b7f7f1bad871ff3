package codemetrics

import (
	"cmp"
	"time"

	"github.com/tempool/tempool"
)

const (
	// method is that of the workers. It takes {"paths": […], "top": n} and returns one FileMeasure for each path, in order.
	method = "measure"
	// batchBytes bounds what one call measures; a file above it is a batch of its own.
	batchBytes = 256 << 10
	// callTimeout bounds one call.
	callTimeout = 20 * time.Second
	// topFunctions is how many of the most complex functions the Summary lists.
	topFunctions = 5
)

// Config says what to measure and where. Client, Pool and Files have no default.
type Config struct {
	Client *tempool.Client
	Pool   string
	// Files are paths that the pool's workers can read.
	Files []string
	// Holder is the holder of the leases. Default: "codemetrics".
	Holder string
	// Concurrency is how many leases are in use at the same time. Default: the size of the pool.
	Concurrency int
	// BatchFiles bounds how many files one call measures. Default: 25.
	BatchFiles int
	// MaxAttempts is how many calls about one file alone may fail before the job fails; the default is 5. A failed batch is halved first, to find the
	// file that causes the failure.
	MaxAttempts int
	// StallTimeout fails the job when no batch is finished for so long. Default: two minutes.
	StallTimeout time.Duration
	// Progress, if set, is called after each batch and each failure, by one goroutine at a time. It should return quickly.
	Progress func(Progress)
}

// Progress is how far a job is.
type Progress struct {
	Files, Total int
	Retried      int // failed calls so far
}

func (c Config) withDefaults() Config {
	c.Holder = cmp.Or(c.Holder, "codemetrics")
	c.BatchFiles = cmp.Or(c.BatchFiles, 25)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 5)
	c.StallTimeout = cmp.Or(c.StallTimeout, 2*time.Minute)
	return c
}
