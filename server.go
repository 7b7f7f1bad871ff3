package tempool

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

// Server describes a Temporal server and the client's namespace.
type Server struct {
	Version string `json:"version"`
	// Retention is how long the namespace keeps closed workflows; 0 is not known.
	Retention time.Duration `json:"retention"`
}

// Server asks the Temporal server. CodeInvalid means that it has no such namespace.
func (c *Client) Server(ctx context.Context) (s Server, err error) {
	info, err := c.temporal.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		return s, c.fromTemporal(err, "ask the Temporal server for its version")
	}
	s.Version = info.GetServerVersion()
	namespace, err := c.temporal.WorkflowService().DescribeNamespace(ctx,
		&workflowservice.DescribeNamespaceRequest{Namespace: c.namespace})
	if _, ok := errors.AsType[*serviceerror.NamespaceNotFound](err); ok {
		return s, api.Errorf(api.CodeInvalid, "the Temporal server has no namespace %s", c.namespace)
	}
	if err != nil {
		return s, c.fromTemporal(err, "describe namespace "+c.namespace)
	}
	s.Retention = namespace.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration()
	return s, nil
}

// GatewayCheck is how a gateway answers this client.
type GatewayCheck struct {
	// Err is why it does not answer.
	Err error
	// Status is ready while it serves calls, else fenced (it has not reached Temporal for too long) or closing.
	Status string
	// ControlPlane is ok, or lost while the gateway does not reach Temporal.
	ControlPlane string
	// Clock is the time of day of its machine, to the second, and At the time here when it answered.
	Clock, At time.Time
	// CertificateExpires is when its certificate does; zero without TLS.
	CertificateExpires time.Time
	// Refused is why the gateway does not accept this client's token or certificate; nil if it does.
	Refused error
}

// gatewayCheckTimeout bounds each request to a gateway that is checked.
const gatewayCheckTimeout = 5 * time.Second

// CheckGateway asks a gateway whether it serves this client.
func (c *Client) CheckGateway(ctx context.Context, endpoint string) (check GatewayCheck) {
	// 503 while it serves no calls
	request := transport.Request{Method: http.MethodGet, Path: "/readyz", Timeout: gatewayCheckTimeout, AnyStatus: true}
	reply, err := c.transport.Do(ctx, endpoint, request)
	if err != nil {
		return GatewayCheck{Err: err}
	}
	content, err := reply.ReadAll()
	if err != nil {
		return GatewayCheck{Err: err}
	}
	var ready api.Readiness
	if json.Unmarshal(content, &ready) != nil || ready.ControlPlane == "" {
		check.Err = api.Errorf(api.CodeUnavailable, "the answer is not from a Tempool gateway: %s", reply.Status)
		return check
	}
	check.At = time.Now()
	check.Clock, _ = http.ParseTime(reply.Header.Get("Date"))
	if reply.TLS != nil && len(reply.TLS.PeerCertificates) > 0 {
		check.CertificateExpires = reply.TLS.PeerCertificates[0].NotAfter
	}
	check.Status, check.ControlPlane = ready.Status, ready.ControlPlane
	// No pool has that name, so the request costs nothing.
	reply, err = c.transport.Do(ctx, endpoint,
		transport.Request{Method: http.MethodGet, Path: "/v1/pools/-/logs?tail=0", Timeout: gatewayCheckTimeout})
	if err == nil {
		_ = reply.Close()
	} else if api.CodeOf(err) == api.CodeUnauthorized {
		check.Refused = err
	}
	return check
}

// DashboardLink signs a browser in at the dashboard of a gateway, as the client that asked for it. It works once,
// within a minute.
type DashboardLink struct {
	URL string `json:"url"`
	// Name and Rights are those of the user whom it signs in.
	Name   string   `json:"name"`
	Rights []string `json:"rights"`
}

// dashboardTimeout bounds the request for a link.
const dashboardTimeout = 10 * time.Second

// DashboardLink asks a gateway for a link to its dashboard. It fails with forbidden if this client does not have the
// right read there, and with unavailable if the gateway has no TCP listener that a browser could reach.
func (c *Client) DashboardLink(ctx context.Context, endpoint string) (link DashboardLink, err error) {
	err = c.askGateway(ctx, endpoint,
		transport.Request{Method: http.MethodPost, Path: "/ui/links", Timeout: dashboardTimeout}, &link)
	return link, err
}
