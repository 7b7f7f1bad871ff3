package gateway

import (
	"time"

	"golang.org/x/sys/unix"
)

// silenceOption of TCP bounds, in seconds, how long a client may acknowledge nothing of what was sent.
const (
	silenceOption = unix.TCP_RXT_CONNDROPTIME
	silenceUnit   = time.Second
)
