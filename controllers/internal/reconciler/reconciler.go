// Package reconciler is what the reconcilers of all kinds have: clients, what the operator was
// started with, and what is remembered for all of them.
package reconciler

import (
	"time"

	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/pkg/logs"
)

// Base is what all reconcilers have. They copy it: what changes is behind pointers, which several
// goroutines may use.
type Base struct {
	decision.Keeper
	Dialer          servers.Dialer
	Events          report.Events
	Image           string      // --server-image
	ImageRDMA       string      // --server-image-rdma; empty = none
	Pprof           bool        // --pprof
	ClusterUserIDs  bool        // --cluster-user-ids
	NetworkPolicies string      // --network-policies
	Logs            logs.Config // --server-log-level, --server-log-format
	Now             func() time.Time
	Spare           *SpareIDs
	Logged          *report.Logged // of decisions
	Figures         *report.Figures
}
