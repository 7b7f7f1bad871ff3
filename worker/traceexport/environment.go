// Package traceexport sends the agent's spans to an OpenTelemetry collector, if the standard OTEL_ variables ask for
// it.
package traceexport

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// ServiceName is the service.name of an agent's spans unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has another.
const ServiceName = "tempool"

// DefaultQueueSize is how many spans wait for the collector at most, unless OTEL_BSP_MAX_QUEUE_SIZE says another
// number.
const DefaultQueueSize = 2048

const (
	defaultBatchSize = 512
	maxNumber        = 1 << 20
)

// asked returns the protocol by which the environment asks for spans to be exported; "" if it does not. It fails with
// what the environment asks for and cannot have.
func asked() (protocol string, err error) {
	endpoint := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	exporter := strings.TrimSpace(os.Getenv("OTEL_TRACES_EXPORTER"))
	switch {
	case strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none", exporter == "" && endpoint == "":
		return "", nil
	case exporter != "" && exporter != "otlp":
		return "", fmt.Errorf("OTEL_TRACES_EXPORTER is %q; use otlp or none", exporter)
	}
	switch protocol = cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"),
		"http/protobuf"); protocol {
	case "http/protobuf", "grpc":
		return protocol, nil
	}
	return "", fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q; use http/protobuf or grpc", protocol)
}

// FromEnvironment returns the Provider that the OTEL_ variables ask for, nil if they ask for none. If it cannot be
// made, the reason is logged and there is none: an agent starts without traces. It contacts nothing.
func FromEnvironment(ctx context.Context, hostID, instance string, logger *slog.Logger) *Provider {
	protocol, err := asked()
	if protocol == "" && err == nil {
		return nil
	}
	var client sdktrace.SpanExporter
	switch {
	case err != nil:
	case protocol == "grpc":
		client, err = otlptracegrpc.New(ctx)
	default:
		client, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		logger.Warn("not exporting traces", "error", err)
		return nil
	}
	size, batch := number("OTEL_BSP_MAX_QUEUE_SIZE", DefaultQueueSize, logger), number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
		defaultBatchSize, logger)
	return newProvider(client, size, min(size, batch), askedSampling(logger), describe(ctx, hostID, instance, logger),
		logger)
}

// describe is the resource of the agent's spans. The environment has the last word.
func describe(ctx context.Context, hostID, instance string, logger *slog.Logger) *resource.Resource {
	described, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", ServiceName),
			attribute.String("service.instance.id", instance), attribute.String("host.name", hostID)),
		resource.WithTelemetrySDK(), resource.WithFromEnv(),
	)
	if err != nil { // what could be read of the variables is in described
		logger.Warn("OTEL_RESOURCE_ATTRIBUTES cannot be read; use key=value,key=value", "error", err)
	}
	return described
}

// number is the value of an OTEL_BSP_ variable, from 1 to maxNumber. The SDK would panic at another one.
func number(name string, unset int, logger *slog.Logger) int {
	text := os.Getenv(name)
	if text == "" {
		return unset
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxNumber {
		logger.Warn(name+" is not used", "value", text, "allowed", fmt.Sprintf("1 to %d", maxNumber), "used", unset)
		return unset
	}
	return n
}
