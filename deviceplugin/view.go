package deviceplugin

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/dmindex/dmindex/deviceplugin/hca"
	"github.com/dmindex/dmindex/deviceplugin/settings"
	"github.com/dmindex/dmindex/pkg/accept"
)

// view is what a round found and did, for metrics and probes.
type view struct {
	at            time.Time
	hcas          []hca.HCA
	given         map[string]string // HCA -> resource
	refused       []settings.Refused
	resources     []resourceView
	settingsWrong error
	labelsWrong   error
	problems      int
	err           error // the round could not look at the machine
}

type resourceView struct {
	name           string
	slots, healthy int
	registered     bool
}

// ready is nil when the kubelet has all that there is to advertise.
func (v view) ready() error {
	if v.at.IsZero() {
		return errors.New("the machine was not looked at yet")
	}
	if v.err != nil {
		return v.err
	}
	for _, r := range v.resources {
		if !r.registered {
			return fmt.Errorf("%s is not registered with the kubelet", r.name)
		}
	}
	return nil
}

// maxMetrics is how many connections the port of metrics and probes has: anybody who reaches it may
// open them. The oldest ends for a new one.
const maxMetrics = 64

// serveHTTP serves metrics and probes, if they are wanted; the result ends that.
func (p *plugin) serveHTTP() (stop func(), err error) {
	if p.c.Metrics == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", p.c.Metrics)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	server := &http.Server{
		Handler:           p.metrics.handler(p.current, p.now, max(time.Minute, 10*p.c.Poll), p.c.Pprof),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	go server.Serve(accept.AtMost(accept.Patiently(l, nil), maxMetrics)) // ends with Close
	if p.c.Ready != nil {
		p.c.Ready(l.Addr())
	}
	return func() { server.Close() }, nil
}
