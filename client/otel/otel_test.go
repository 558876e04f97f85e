package otel_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/client/otel"
	"github.com/dmindex/dmindex/computeserver"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// server starts a compute server, and returns its address.
func server(t *testing.T) string {
	t.Helper()
	store, maps := memindex.New(env.Real(), 512, 2048), computeservertest.NewMaps()
	s, err := computeserver.New(computeserver.Config{
		ID: 1, Version: "test", Index: computeservertest.Config(config.RoutingOwner), SharesAll: true, Maps: maps, AllowNoPassword: true,
		Limit:      30 * time.Second,
		Open:       func() (ownership.Opened, error) { return store.Open(), nil },
		ListenRESP: "127.0.0.1:0", ListenRPC: "127.0.0.1:0", ListenMetrics: "127.0.0.1:0",
		Logger: computeservertest.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		maps.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	a := s.Addresses()
	m, err := partition.ByBoundaries(computeservertest.Index, []partition.Server{{ID: 1, Name: "pod-1", RPC: a.RPC, RESP: a.RESP}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	maps.Set(t, m)
	return a.RPC
}

// TestInstrument: a program's calls are spans and durations, as the exporters of OpenTelemetry's
// own SDK get them.
func TestInstrument(t *testing.T) {
	address := server(t)
	host, _, _ := net.SplitHostPort(address)
	spans, reader := tracetest.NewInMemoryExporter(), metric.NewManualReader()
	tracers, meters := trace.NewTracerProvider(trace.WithSyncer(spans)), metric.NewMeterProvider(metric.WithReader(reader))
	told := 0
	o := client.Options{Endpoints: []string{address}, Insecure: true, Limit: time.Minute, Attempt: 20 * time.Second, OnCall: func(context.Context, client.Call) { told++ }}
	if err := otel.Instrument(&o, otel.Options{Tracers: tracers, Meters: meters, Index: "shop/stock"}); err != nil {
		t.Fatal(err)
	}
	c, err := client.Connect(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	ctx, parent := tracers.Tracer("program").Start(context.Background(), "request")
	small, large := []byte("secret"), make([]byte, 20_000)
	if err := c.Put(ctx, small, []byte("1")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, []byte("none")); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
	if err := c.Put(ctx, small, large); !errors.Is(err, client.ErrInvalid) {
		t.Fatal(err)
	}
	if _, err := c.GetMany(ctx, [][]byte{small, []byte("b"), []byte("c")}); err != nil {
		t.Fatal(err)
	}
	for _, err := range c.ScanPrefix(ctx, nil, client.ScanOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	mine := errors.New("secret of the program")
	if err := c.Transaction(ctx, func(tx *client.Tx) error { tx.Put(small, nil); return mine }); err != mine {
		t.Fatal(err)
	}
	parent.End()

	want := []struct {
		name  string
		has   []attribute.KeyValue
		hasNo []attribute.Key
		fails bool
	}{
		{"put shop/stock", []attribute.KeyValue{attribute.String("db.operation.name", "put"), attribute.String("network.peer.address", host)}, []attribute.Key{"error.type", "db.response.status_code", "db.operation.batch.size"}, false},
		{"get shop/stock", []attribute.KeyValue{attribute.String("db.response.status_code", "not_found")}, []attribute.Key{"error.type"}, false},
		{"put shop/stock", []attribute.KeyValue{attribute.String("db.response.status_code", "invalid"), attribute.String("error.type", "invalid")}, nil, true},
		{"get many shop/stock", []attribute.KeyValue{attribute.Int("db.operation.batch.size", 3)}, []attribute.Key{"network.peer.address"}, false},
		{"scan shop/stock", []attribute.KeyValue{attribute.Int("db.response.returned_rows", 1)}, []attribute.Key{"db.operation.batch.size"}, false},
		{"transaction shop/stock", []attribute.KeyValue{attribute.String("error.type", "other")}, nil, true},
	}
	got := spans.GetSpans()
	if len(got) != len(want)+1 || told != len(want) {
		t.Fatalf("%d spans, and %d calls told to the program's own function; want %d and %d", len(got), told, len(want)+1, len(want))
	}
	for i, w := range want {
		s := got[i]
		if s.Name != w.name || s.Parent.SpanID() != parent.SpanContext().SpanID() || s.EndTime.Before(s.StartTime) || (s.Status.Code == codes.Error) != w.fails {
			t.Errorf("span %d is %q of %v with the status %v, want %q of %v, failed: %v", i, s.Name, s.Parent.SpanID(), s.Status, w.name, parent.SpanContext().SpanID(), w.fails)
		}
		for _, kv := range append(w.has, attribute.String("db.system.name", "dmindex"), attribute.String("db.namespace", "shop/stock"), attribute.String("server.address", host)) {
			if !slices.Contains(s.Attributes, kv) {
				t.Errorf("span %d (%s) has %v, without %v", i, s.Name, s.Attributes, kv)
			}
		}
		for _, kv := range s.Attributes {
			if slices.Contains(w.hasNo, kv.Key) || strings.Contains(kv.Value.String(), "secret") {
				t.Errorf("span %d (%s) has %v", i, s.Name, kv)
			}
		}
		if strings.Contains(s.Status.Description, "secret") {
			t.Errorf("span %d (%s) tells a key: %s", i, s.Name, s.Status.Description)
		}
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	m := all.ScopeMetrics[0].Metrics[0]
	counts := map[string]uint64{}
	for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
		op, _ := p.Attributes.Value("db.operation.name")
		class, _ := p.Attributes.Value("error.type")
		counts[op.AsString()+"/"+class.AsString()] += p.Count
		if p.Sum <= 0 {
			t.Errorf("%s took %v s", op.AsString(), p.Sum)
		}
	}
	if m.Name != "db.client.operation.duration" || m.Unit != "s" || len(counts) != len(want) || counts["put/"] != 1 || counts["put/invalid"] != 1 || counts["scan/"] != 1 {
		t.Errorf("%s in %s has %v", m.Name, m.Unit, counts)
	}
}
