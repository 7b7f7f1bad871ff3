package api

import "time"

// LogLine is one line of a worker's log, as a gateway answers it.
type LogLine struct {
	Worker      string    `json:"worker"`
	Host        string    `json:"host"` // whose gateway answered
	Incarnation int64     `json:"incarnation"`
	At          time.Time `json:"at"` // by the host's clock
	// Stream is stdout or stderr; or tempool, for the start and the end of a process and for lines that were dropped.
	Stream string `json:"stream"`
	// Text is one line without its ending, at most 64 KiB and a mark that the rest was cut.
	Text string `json:"text"`
	// Seq orders the lines of one worker on one host. Numbers may be missing.
	Seq int64 `json:"seq"`
}
