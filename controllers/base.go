package controllers

import (
	"time"

	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/pkg/logs"
)

// base is what all reconcilers have.
type base struct {
	decision.Keeper
	dialer    servers.Dialer
	events    report.Events
	image     string      // --server-image
	imageRDMA string      // --server-image-rdma; empty = none
	pprof     bool        // --pprof
	anyUser   bool        // --cluster-user-ids
	policies  string      // --network-policies
	logs      logs.Config // --server-log-level, --server-log-format
	now       func() time.Time
	spare     *spareIDs
	logged    *report.Logged // of decisions
	figures   *report.Figures
}
