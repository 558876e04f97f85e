package controllers

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/backup"
	"github.com/dmindex/dmindex/controllers/internal/index"
	"github.com/dmindex/dmindex/controllers/internal/memorypool"
)

var descLeading = prometheus.NewDesc("dmindex_operator_leading",
	"1 of the operator that leads, 0 of those that wait. Only the one that leads shows indexes and memory pools.", nil, nil)

// collectLimit bounds how long the collector waits for the cache, which may not be filled yet.
const collectLimit = 5 * time.Second

// collector has what the operator shows of each index, memory pool, backup and schedule. It is read
// from the cache when somebody asks for it, so an object that is gone is not shown, and nothing is
// to be removed.
type collector struct {
	reader  client.Reader
	elected <-chan struct{} // closed when this operator leads
	indexes *index.Reconciler
	memory  *memorypool.Reconciler
	leases  *namespaceLeases // nil = without
}

// Describe implements prometheus.Collector.
func (m *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range slices.Concat([]*prometheus.Desc{descLeading}, index.Descs(), backup.Descs(), memorypool.Descs()) {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (m *collector) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	select {
	case <-m.elected:
		gauge(descLeading, 1)
	default:
		gauge(descLeading, 0)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectLimit)
	defer cancel()
	indexes, pools := &dmv1.DMIndexList{}, &dmv1.DMMemoryPoolList{}
	backups, schedules := &dmv1.DMBackupList{}, &dmv1.DMBackupScheduleList{}
	for _, list := range []client.ObjectList{indexes, pools, backups, schedules} {
		if err := m.reader.List(ctx, list); err != nil {
			metrics <- prometheus.NewInvalidMetric(descLeading, err)
			return
		}
	}
	// Their own operator shows them.
	indexes.Items = slices.DeleteFunc(indexes.Items, func(o dmv1.DMIndex) bool { return m.leases.isOthers(o.Namespace) })
	pools.Items = slices.DeleteFunc(pools.Items, func(o dmv1.DMMemoryPool) bool { return m.leases.isOthers(o.Namespace) })
	backups.Items = slices.DeleteFunc(backups.Items, func(o dmv1.DMBackup) bool { return m.leases.isOthers(o.Namespace) })
	schedules.Items = slices.DeleteFunc(schedules.Items, func(o dmv1.DMBackupSchedule) bool { return m.leases.isOthers(o.Namespace) })
	m.indexes.Show(indexes.Items, pools.Items, gauge)
	backup.Show(backups.Items, schedules.Items, gauge)
	m.memory.Show(pools.Items, indexes.Items, metrics)
}
