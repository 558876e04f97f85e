package papers

import (
	"slices"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
)

// The papers measured SMART beside Sherman four times, and their ratios contradict each other: 6.1,
// 0.88, 1.37 and 1.14 in A, 2.8, 0.84, 0.38 and below 1 in C, 1.6, 1.33 and 0.65 in LOAD. The
// experiments of SMART's, CHIME's and Dolphin's papers are among theirs. Here is that of DEX's with
// SMART in it, and what moves the ratio: one thing at a time.

// lacking is a program of Sherman that has neither read delegation nor write combining, nor what is
// off besides.
func lacking(label string, off ...string) variant {
	return variant{label: label, design: "sherman", off: slices.Concat(publishedSherman.off, off)}
}

var notHandedOver = lacking("locks not handed over", "hierarchical")

// withServers is so many servers of each kind, and clients on each compute server.
func withServers(c clusterSize) setting {
	return with("", func(r *bench.Run) {
		r.MemoryServers, r.ComputeServers, r.Clients = c.memory, c.compute, c.compute*c.each
	}, "servers", "clients")
}

// called gives settings together another label.
func called(label string, list ...setting) setting {
	s := all(list...)
	s.label = label
	return s
}

// Caches of each compute server, in MB for 60 million records.
const (
	dexCache   = 256.0 * 60 / 200 // 256 MB for 200 million
	roomyCache = 2500             // nearly all inner nodes of SMART
)

// ratioParts are the workloads in which the papers compare SMART with Sherman.
var ratioParts = []comparedPart{
	{workload: "A", distribution: paperSkew},
	{workload: "C", distribution: paperSkew},
	{workload: "LOAD", distribution: "uniform"},
}

// claimComparisons are experiments that claims need and no other list has.
var claimComparisons = []Comparison{
	{
		Name: "five-claims-dex", title: "DEX, figures 6 and 7 and table 2, with SMART: caches of 256 MB for 200 million records", cluster: clusterSize{4, 4, 36}, records: 300_000, warmup: 300_000, cache: dexCache,
		variants: []variant{shermanVariant, publishedSherman, pShermanVariant, smartVariant, dexVariant},
		settings: []setting{withScan(100)},
		parts: []comparedPart{
			{workload: "C", distribution: paperSkew},
			{workload: "B", distribution: paperSkew},
			{workload: "A", distribution: paperSkew},
			{workload: "E", distribution: paperSkew},
			{name: "uniform C", workload: "C", distribution: "uniform"},
			{name: "uniform A", workload: "A", distribution: "uniform"},
			{name: "uniform E", workload: "E", distribution: "uniform"},
		},
		notes: []string{"Sherman as published is without read delegation and write combining."},
	},
	{
		Name: "five-claims-causes", title: "What moves the ratio of SMART to Sherman: one thing at a time", cluster: clusterSize{2, 4, 96}, warmup: 400_000, cache: roomyCache,
		variants: []variant{publishedSherman, shermanVariant, smartVariant},
		settings: []setting{
			called("as SMART's paper, but 4 compute servers"),
			withCache(chimeCache),
			withUniform(),
			withRanks(60e6),
			withRate(45),
			withMemory(1),
			called("4 memory servers, 72 clients", withServers(clusterSize{4, 4, 18})),
			called("4 memory servers, 72 clients, 100 MB", withServers(clusterSize{4, 4, 18}), withCache(chimeCache)),
		},
		parts: ratioParts,
		notes: []string{"The first line has 2 memory servers, 384 clients, caches of 2,500 MB, keys of zipfian:0.99/1e9, and 77 million messages; each line behind it changes what it says. Caches are in MB for 60 million records."},
	},
	{
		Name: "five-claims-skew", title: "What moves the ratio of SMART to Sherman: skew, with and without locks that are handed over", cluster: clusterSize{2, 4, 96}, warmup: 400_000, cache: roomyCache,
		variants: []variant{publishedSherman, notHandedOver, smartVariant},
		settings: []setting{withTheta(0.5), withTheta(0.9), withTheta(0.99)},
		parts:    []comparedPart{{workload: "A", distribution: paperSkew}},
		notes:    []string{"Both are Sherman without read delegation and write combining."},
	},
	{
		Name: "five-claims-programs", title: "What moves the ratio of SMART to Sherman: programs of Sherman", cluster: clusterSize{2, 4, 96}, warmup: 400_000, cache: roomyCache,
		variants: []variant{
			publishedSherman,
			notHandedOver,
			lacking("locks in host memory", "onChip"),
			lacking("neither", "hierarchical", "onChip"),
			lacking("neither, and requests apart", "hierarchical", "onChip", "combine"),
			{label: "leaves of 2 KiB", design: "sherman", off: publishedSherman.off, node: 2048},
			{label: "leaves of 4 KiB", design: "sherman", off: publishedSherman.off, node: 4096},
			smartVariant,
		},
		settings: []setting{all(withKeys(32), withValues(64), withMemory(1)), called("keys and values of 8 B")},
		parts:    ratioParts,
		notes:    []string{"All of them are Sherman without read delegation and write combining, but the last one."},
	},
}
