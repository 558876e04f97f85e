// Package otel tells OpenTelemetry of the calls of a client: a span and a duration for each, as the
// semantic conventions of databases name them. Programs that do not import it have none of
// OpenTelemetry in them.
//
//	options, err := client.FromSecret("/etc/my-index-conn")
//	err = otel.Instrument(&options, otel.Options{Index: "shop/my-index"})
//	index, err := client.Connect(ctx, options)
//
// A span is made when its call has ended, with the times of the call, as a child of the span that
// the call's context has. Keys and values are in no span: they may be secrets.
package otel

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/dmindex/dmindex/client"
)

// Options say where spans and durations go. Zero values mean the default.
type Options struct {
	// Tracers makes the tracer. Default: the global one of OpenTelemetry.
	Tracers trace.TracerProvider
	// Meters makes the meter. Default: the global one of OpenTelemetry.
	Meters metric.MeterProvider
	// Index is db.namespace: the name of the index, such as its namespace and name in the cluster.
	// Default: none.
	Index string
}

const scope = "github.com/dmindex/dmindex/client/otel"

// Attributes, as the conventions of version 1.37 name them.
const (
	system     = attribute.Key("db.system.name")
	operation  = attribute.Key("db.operation.name")
	namespace  = attribute.Key("db.namespace")
	status     = attribute.Key("db.response.status_code")
	batch      = attribute.Key("db.operation.batch.size")
	rows       = attribute.Key("db.response.returned_rows")
	errorType  = attribute.Key("error.type")
	serverHost = attribute.Key("server.address")
	serverPort = attribute.Key("server.port")
	peerHost   = attribute.Key("network.peer.address")
	peerPort   = attribute.Key("network.peer.port")
)

// bounds are those of the conventions, and finer ones below them: most calls take less than a
// millisecond.
var bounds = []float64{0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10}

// observer is OnCall of a client.
type observer struct {
	tracer   trace.Tracer
	duration metric.Float64Histogram
	common   []attribute.KeyValue
	target   string // in the names of spans
	next     func(context.Context, client.Call)
}

// Instrument sets o.OnCall. A function that o.OnCall has already is called, too.
func Instrument(o *client.Options, with Options) error {
	if with.Tracers == nil {
		with.Tracers = otel.GetTracerProvider()
	}
	if with.Meters == nil {
		with.Meters = otel.GetMeterProvider()
	}
	duration, err := with.Meters.Meter(scope).Float64Histogram("db.client.operation.duration",
		metric.WithUnit("s"), metric.WithDescription("Duration of database client operations."), metric.WithExplicitBucketBoundaries(bounds...))
	if err != nil {
		return err
	}
	b := &observer{tracer: with.Tracers.Tracer(scope), duration: duration, common: []attribute.KeyValue{system.String("dmindex")}, next: o.OnCall}
	if with.Index != "" {
		b.common = append(b.common, namespace.String(with.Index))
	}
	endpoint := ""
	if len(o.Endpoints) > 0 { // else Connect says what is wrong
		endpoint = o.Endpoints[0]
		b.common = append(b.common, address(endpoint, serverHost, serverPort)...)
	}
	b.target = cmp.Or(with.Index, endpoint)
	o.OnCall = b.recordCall
	return nil
}

// address is "host:port" as two attributes.
func address(of string, host, port attribute.Key) []attribute.KeyValue {
	h, p, err := net.SplitHostPort(of)
	if err != nil {
		return []attribute.KeyValue{host.String(of)}
	}
	out := []attribute.KeyValue{host.String(h)}
	if n, err := strconv.Atoi(p); err == nil {
		out = append(out, port.Int(n))
	}
	return out
}

// description is what went wrong, without the key.
func description(err error) string {
	if e := (*client.Error)(nil); errors.As(err, &e) {
		return e.Op + ": " + e.Err.Error()
	}
	return "an error of the program"
}

// recordCall makes the span of a call, and counts its duration.
func (b *observer) recordCall(ctx context.Context, call client.Call) {
	class, answer := client.Class(call.Err)
	of := append(make([]attribute.KeyValue, 0, len(b.common)+7), b.common...)
	of = append(of, operation.String(call.Op))
	if class != "" {
		of = append(of, status.String(class))
		if !answer {
			of = append(of, errorType.String(class))
		}
	}
	measured := attribute.NewSet(of...) // copies
	if call.Server != "" {
		of = append(of, address(call.Server, peerHost, peerPort)...)
	}
	if call.Op == "scan" {
		of = append(of, rows.Int(call.Keys))
	} else if call.Keys > 1 {
		of = append(of, batch.Int(call.Keys))
	}
	ctx, span := b.tracer.Start(ctx, call.Op+" "+b.target, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(call.Began), trace.WithAttributes(of...))
	if !answer {
		span.SetStatus(codes.Error, description(call.Err))
	}
	// ctx has the span, which is an example of the duration.
	b.duration.Record(ctx, call.Took.Seconds(), metric.WithAttributeSet(measured))
	span.End(trace.WithTimestamp(call.Began.Add(call.Took)))
	if b.next != nil {
		b.next(ctx, call)
	}
}
