package papers

import "github.com/dmindex/dmindex/pkg/index/psherman"

// Variants of several figures.
var (
	shermanVariant  = variant{label: "Sherman", design: "sherman"}
	pShermanVariant = variant{label: "P-Sherman", design: psherman.Name}
	dexVariant      = variant{label: "DEX", design: "dex"}
	smartVariant    = variant{label: "SMART", design: "smart"}
	chimeVariant    = variant{label: "CHIME", design: "chime"}
	dolphinVariant  = variant{label: "Dolphin", design: "dolphin"}
)

// likeDEX gives figures the servers of DEX's paper, with 36 threads on each compute server, and
// fewer items than its 200 million. With many fewer than a million there are not enough subtrees
// for all memory servers, each of which has subtrees as a whole. Caches need some time to find what
// is popular.
func likeDEX(list []Comparison) []Comparison {
	for i := range list {
		c := &list[i]
		c.cluster, c.records, c.ops, c.warmupShare, c.table = clusterSize{memory: 4, compute: 4, each: 36}, 1_000_000, 60_000, 4, pointsTable
	}
	return list
}

// byClients are shares of the clients of one compute server: in DEX's figures compute servers are
// added one by one, each with 36 threads.
var byClients = []float64{1.0 / 18, 1, 2, 4}

// paperHits is the popularity with which the most popular 8% of a million items get as many of the
// operations as in DEX's paper.
const paperHits = "zipfian:0.99/485000"

// dexFigures are those of DEX (PVLDB 17(10), 2024), section 8. Only its text is used: what stands
// in diagrams alone is not read off.
var dexFigures = likeDEX([]Comparison{
	{
		Name: "dex-6", title: "DEX, figure 6: throughput under skewed workloads", percent: 8,
		grow:     growingClients(byClients...),
		variants: []variant{shermanVariant, pShermanVariant, dexVariant},
		parts: []comparedPart{
			{name: "read-only", workload: "C", distribution: paperSkew, claims: []float64{1, 3.6 / 2.5, 3.6}},
			{name: "read-intensive", workload: "B", distribution: paperSkew, claims: []float64{1, 3.4 / 2.5, 3.4}},
			{name: "write-intensive", workload: "A", distribution: paperSkew, claims: []float64{1, 0, 9.6}},
			{name: "insert-intensive", workload: "insert-intensive", distribution: paperSkew},
			{name: "scan-intensive", workload: "E", distribution: paperSkew, scan: 100, claims: []float64{1, 2.8 / 1.6, 2.8}},
		},
		notes: []string{
			"The paper's ratios are those of its text, to Sherman. Its Sherman READs 3.02 times for a lookup (versions before and after, inner nodes that its cache lacks), ours once.",
		},
	},
	{
		Name: "dex-6-published", title: "DEX, figure 6 with the paper's hit rate, over Sherman as published", percent: 8,
		grow:     growingClients(byClients...),
		variants: []variant{publishedSherman, shermanVariant, pShermanVariant, dexVariant},
		parts: []comparedPart{
			{name: "read-only", workload: "C", distribution: paperHits, claims: []float64{1, 0, 3.6 / 2.5, 3.6}},
			{name: "read-intensive", workload: "B", distribution: paperHits, claims: []float64{1, 0, 3.4 / 2.5, 3.4}},
			{name: "write-intensive", workload: "A", distribution: paperHits, claims: []float64{1, 0, 0, 9.6}},
		},
		notes: []string{
			"With so many ranks the most popular 8% of a million items get 86% of the operations, as the paper's 8% of 200 million do. Then the first item gets 6.9% of them, the paper's 4.6%.",
			"Sherman is ours with all techniques, the strongest baseline.",
		},
	},
	{
		Name: "dex-6-processor", title: "DEX, figure 6 by processor time of an operation", percent: 8,
		grow:     growingProcessor(0.5, 1, 2),
		variants: []variant{shermanVariant, pShermanVariant, dexVariant},
		parts: []comparedPart{
			{name: "read-only", workload: "C", distribution: paperSkew, claims: []float64{1, 3.6 / 2.5, 3.6}},
			{name: "write-intensive", workload: "A", distribution: paperSkew, claims: []float64{1, 0, 9.6}},
		},
		notes: []string{"In brackets: over Sherman with the same processor time. Ratios and requests behind them are those of the last column."},
	},
	{
		Name: "dex-7", title: "DEX, figure 7: throughput under uniform workloads", percent: 8,
		grow:     growingClients(byClients...),
		variants: []variant{shermanVariant, pShermanVariant, dexVariant},
		parts: []comparedPart{
			{name: "read-only", workload: "C", distribution: "uniform"},
			{name: "read-intensive", workload: "B", distribution: "uniform"},
			{name: "write-intensive", workload: "A", distribution: "uniform"},
			{name: "insert-intensive", workload: "insert-intensive", distribution: "uniform"},
			{name: "scan-intensive", workload: "E", distribution: "uniform", scan: 100},
		},
		notes: []string{"The paper says that DEX outperforms Sherman in all of them and does about as well as P-Sherman; numbers stand in its diagrams only."},
	},
	{
		Name: "dex-8", title: "DEX, figure 8: effect of each technique, cache of 1%", percent: 1,
		grow: growingClients(byClients...),
		variants: []variant{
			{label: "baseline", design: publishedSherman.design, off: publishedSherman.off},
			{label: "+Partitioning", design: psherman.Name},
			{label: "+Caching", design: "dex", off: []string{"offloading", "entries"}},
			{label: "+Offloading", design: "dex", off: []string{"entries"}},
			{label: "+Entries (ours)", design: "dex"},
		},
		parts: []comparedPart{
			{name: "write-intensive", workload: "A", distribution: paperSkew},
			{name: "write-intensive", workload: "A", distribution: "uniform"},
		},
		notes: []string{
			"The baseline is Sherman as published, without read delegation and write combining; +Partitioning is P-Sherman, which has both.",
			"The paper: with 2 threads partitioning gives 2.4 times the baseline's throughput; caching then 21.2 (skewed) and 6.9 times (uniform); offloading 1.55 and 1.34 times.",
		},
	},
	{
		Name: "dex-9", title: "DEX, figure 9: effect of cache design choices, read-intensive, skewed",
		grow: growingCache(2, 8),
		variants: []variant{
			{label: "one queue, all admitted", design: "dex", off: []string{"coolingMap", "leafAdmission", "frequencies", "entries", "offloading"}},
			{label: "+Cooling map", design: "dex", off: []string{"leafAdmission", "frequencies", "entries", "offloading"}},
			{label: "+Leaf admission", design: "dex", off: []string{"frequencies", "entries", "offloading"}},
			{label: "+Frequencies (ours)", design: "dex", off: []string{"entries", "offloading"}},
			{label: "+Entries (ours)", design: "dex", off: []string{"offloading"}},
		},
		parts: []comparedPart{{name: "read-intensive", workload: "B", distribution: paperSkew, claims: []float64{1, 10, 10 * 1.21}}},
		notes: []string{
			"The paper's 64 MB and 256 MB are 2% and 8%. With 64 MB its cooling map gives 12 times the throughput of one queue, leaf admission 1.25 times more; with 256 MB 10 and 1.21 times.",
			"What the cooling map saves is waiting for a lock between cores, which takes no simulated time.",
		},
	},
	{
		Name: "dex-11", title: "DEX, figure 11: throughput under different cache sizes, skewed",
		grow:     growingCache(1, 2, 4, 8, 16, 32),
		variants: []variant{shermanVariant, dexVariant},
		parts: []comparedPart{
			{name: "read-intensive", workload: "B", distribution: paperSkew},
			{name: "write-intensive", workload: "A", distribution: paperSkew},
		},
		notes: []string{
			"The paper: DEX gains with the cache, Sherman does not, as it keeps no leaves. When half the operations write, DEX gains from 1% to 8%, and loses with more: cores meet at the locks of popular leaves.",
		},
	},
	{
		Name: "dex-12", title: "DEX, figure 12: effect of offloading by threads of each memory server, skewed, cache of 1%", percent: 1,
		grow: growingThreads(1, 2, 4),
		variants: []variant{
			{label: "DEX -offloading", design: "dex", off: []string{"offloading"}},
			{label: "DEX -costAware", design: "dex", off: []string{"costAware"}},
			dexVariant,
		},
		parts: []comparedPart{
			{name: "read-intensive", workload: "B", distribution: paperSkew, claims: []float64{1, 0, 1.4}},
			{name: "write-intensive", workload: "A", distribution: paperSkew, claims: []float64{1, 0, 1.55}},
		},
		notes: []string{"The paper: with more threads requests of all kinds fall by 56% (read-intensive) and 49% (write-intensive); throughput rises by 40% and 55%."},
	},
})
