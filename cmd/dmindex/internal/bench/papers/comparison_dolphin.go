package papers

import "fmt"

// dolphinCluster has the servers of Dolphin's paper, with 18 threads on each compute server.
var dolphinCluster = clusterSize{memory: 4, compute: 4, each: 18}

// dolphinMillion are the millions of records of the paper, where the others have 60.
const dolphinMillion = 512.0

// dolphinCache is what each compute server has in the paper's figures 7 and 8, in MB for 60 million
// records: 2,000 for 512 million.
const dolphinCache = 2000 * 60 / dolphinMillion

// likeDolphin is a cache of so many MB for 512 million records.
func likeDolphin(mb float64) setting {
	return called(fmt.Sprintf("%g MB", mb), withCache(mb*60/dolphinMillion))
}

// dolphinLeaves is a Dolphin with leaves of so many bytes.
func dolphinLeaves(bytes int) variant {
	return variant{label: fmt.Sprintf("Dolphin, leaves of %d B", bytes), design: "dolphin", node: bytes}
}

var (
	// the smallest leaves with which inner nodes take no more of a cache than Sherman's
	smallDolphin = dolphinLeaves(704)
	// leaves of Marlin, whose values lie outside of them
	marlinLeaves = variant{label: "Dolphin, values in blocks", design: "dolphin", inline: 1}
)

// dolphinVariants are those of all its figures, the strongest Sherman first.
var dolphinVariants = []variant{shermanVariant, publishedSherman, smartVariant, dolphinVariant, smallDolphin}

// dolphinFigures are those of Dolphin (An and others), section IV. Only its text is used: what
// stands in diagrams alone is not read off.
var dolphinFigures = []Comparison{
	{
		Name: "dolphin-6", title: "Dolphin, figure 6: by the cache of each compute server, half updates; caches in MB for 512 million records", cluster: dolphinCluster, warmup: 300_000,
		variants: dolphinVariants,
		settings: []setting{likeDolphin(50), likeDolphin(100), likeDolphin(200), likeDolphin(400), likeDolphin(800)},
		parts: []comparedPart{
			{name: "6a", workload: "A", distribution: paperSkew, claims: []float64{0, 1, 1.51 / 1.32, 1.51}},
			{name: "6b", workload: "A", distribution: "zipfian:0.9/1e9"},
			{name: "6c", workload: "A", distribution: "uniform"},
		},
		notes: []string{"The paper's ratios are to its own Sherman. With 200 MB it has 1.16 to 3.26 times the others. How skewed its figure 6b is stands in the diagram alone."},
	},
	{
		Name: "dolphin-7", title: "Dolphin, figure 7: YCSB with caches of 2,000 MB for 512 million records", cluster: dolphinCluster, warmup: 300_000, cache: dolphinCache, doubles: true,
		variants: append(dolphinVariants[:len(dolphinVariants):len(dolphinVariants)], marlinLeaves),
		settings: []setting{withEach(64), withEach(18)},
		parts: []comparedPart{
			{name: "7a", workload: "A", distribution: paperSkew, claims: []float64{0, 1, 0, 1.45}},
			{name: "7b", workload: "C", distribution: paperSkew, claims: []float64{0, 1, 0, 1}},
			{name: "7c", workload: "LOAD", distribution: "uniform", claims: []float64{0, 1, 1 / 1.54, 1}},
		},
		notes: []string{"The paper has 18 threads on each compute server, and Dolphin 1.25 to 1.45 times ahead of all others in A. With 64 clients the memory servers' NICs decide. " + doublesNote},
	},
	{
		Name: "dolphin-8", title: "Dolphin, figure 8: scans of 100, uniform, with caches of 2,000 MB for 512 million records", cluster: dolphinCluster, warmup: 20_000, ops: 4_000, cache: dolphinCache,
		variants: dolphinVariants,
		settings: []setting{all(withScan(100), withEach(64)), all(withScan(100), withEach(18))},
		parts: []comparedPart{
			{workload: "range-only", distribution: "uniform", claims: []float64{0, 1, 1 / 22.4, 1}},
			{workload: "range-write", distribution: "uniform"},
		},
		notes: []string{"In the paper Sherman and Dolphin are even, 22.4 times ahead of SMART and 4.38 of Marlin. range-write is half scans, half inserts and updates."},
	},
	{
		Name: "dolphin-table2", title: "Dolphin, table II: cache that holds all inner nodes, and memory, by the number of records", cluster: clusterSize{1, 1, 16}, warmup: 600_000, ops: 2_000, doubles: true, columns: memoryColumns,
		variants: []variant{
			{label: "Sherman", design: "sherman", cache: 100},
			roomySmart,
			{label: dolphinVariant.label, design: "dolphin", cache: 100},
			{label: smallDolphin.label, design: "dolphin", node: smallDolphin.node, cache: 100},
		},
		settings: []setting{
			withItems(65_536), withItems(131_072), withItems(262_144), withItems(524_288), withItems(1_048_576), withItems(2_000_000),
		},
		parts: []comparedPart{{workload: "C", distribution: "uniform"}, {workload: "LOAD", distribution: "uniform"}},
		notes: []string{
			"The paper, with 512 million items: Sherman 460 MB (0.90 bytes an item) and 12 GB (23), SMART 5,200 (10.2) and 156 (305), Dolphin 320 (0.63) and 14 (27).",
			"2,000,000 are a 256th of 512 million. C is after a bulk load, LOAD after as many inserts again in random order.",
		},
	},
	{
		Name: "dolphin-leaves", title: "Dolphin: by the size of leaves", cluster: dolphinCluster, warmup: 300_000, cache: dolphinCache, doubles: true,
		variants: []variant{shermanVariant, dolphinVariant, dolphinLeaves(832), smallDolphin, dolphinLeaves(512), dolphinLeaves(320)},
		settings: []setting{withEach(64)},
		parts: []comparedPart{
			{workload: "C", distribution: paperSkew},
			{workload: "A", distribution: paperSkew},
			{workload: "LOAD", distribution: "uniform"},
		},
		notes: []string{doublesNote},
	},
}
