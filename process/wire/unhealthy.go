package wire

import (
	"encoding/json"
	"strings"
)

// UnhealthyMethod is the notification with which a worker reports itself unhealthy; its payload is {"reason": "…"}.
const UnhealthyMethod = "worker.unhealthy"

// notified handles a notification of the worker. The host drops those that it does not know, as workers do.
func (c *conn) notified(method string, payload []byte) error {
	if method != UnhealthyMethod {
		return nil
	}
	var report struct {
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(payload, &report); err != nil {
		return violation("an invalid notification %s: %v", UnhealthyMethod, err)
	}
	if c.o.OnUnhealthy != nil {
		c.o.OnUnhealthy(strings.ToValidUTF8(report.Reason[:min(len(report.Reason), MaxReason)], ""))
	}
	return nil
}
