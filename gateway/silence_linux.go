package gateway

import (
	"time"

	"golang.org/x/sys/unix"
)

// silenceOption of TCP bounds, in milliseconds, how long a client may acknowledge nothing of what was sent.
const (
	silenceOption = unix.TCP_USER_TIMEOUT
	silenceUnit   = time.Millisecond
)
