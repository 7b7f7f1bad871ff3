package codemetrics

import (
	"cmp"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// Defaults of Config.
const (
	DefaultMethod       = "measure"
	DefaultBatchFiles   = 25
	DefaultBatchBytes   = 256 << 10
	DefaultCallTimeout  = 20 * time.Second
	DefaultMaxAttempts  = 5
	DefaultStallTimeout = 2 * time.Minute
	DefaultTop          = 5
)

// Config says what to measure and where. Client, Pool and Files have no default.
type Config struct {
	Client *tempool.Client
	Pool   string
	// Files are paths that the pool's workers can read.
	Files []string
	// Holder is the holder of the leases. Default: "codemetrics".
	Holder string
	// Method is the workers' method. It takes {"paths": […], "top": n} and returns one FileMeasure for each path, in order.
	Method string
	// Concurrency is how many leases are in use at the same time. Default: the size of the pool.
	Concurrency int
	// BatchFiles and BatchBytes bound what one call measures; a file above BatchBytes is a batch of its own.
	BatchFiles int
	BatchBytes int64
	// CallTimeout bounds one call.
	CallTimeout time.Duration
	// MaxAttempts is how many calls about one file alone may fail before the job fails. A failed batch is halved first, to find the file that
	// causes the failure.
	MaxAttempts int
	// StallTimeout fails the job when no batch is finished for so long.
	StallTimeout time.Duration
	// Top is how many of the most complex functions the Summary lists; negative for none.
	Top int
	// Progress, if set, is called after each batch and each failure, by one goroutine at a time. It should return quickly.
	Progress func(Progress)
}

// Progress is how far a job is.
type Progress struct {
	Files, Total int
	Retried      int // failed calls so far
}

func (c Config) withDefaults() (Config, error) {
	c.Holder = cmp.Or(c.Holder, "codemetrics")
	c.Method = cmp.Or(c.Method, DefaultMethod)
	c.BatchFiles = cmp.Or(c.BatchFiles, DefaultBatchFiles)
	c.BatchBytes = cmp.Or(c.BatchBytes, DefaultBatchBytes)
	c.CallTimeout = cmp.Or(c.CallTimeout, DefaultCallTimeout)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, DefaultMaxAttempts)
	c.StallTimeout = cmp.Or(c.StallTimeout, DefaultStallTimeout)
	c.Top = max(0, cmp.Or(c.Top, DefaultTop))
	if c.Concurrency < 0 || c.BatchFiles < 0 || c.BatchBytes < 0 || c.MaxAttempts < 0 || c.CallTimeout < 0 || c.StallTimeout < 0 {
		return c, api.Errorf(api.CodeInvalid, "the numbers and timeouts of a job must not be negative")
	}
	return c, nil
}
