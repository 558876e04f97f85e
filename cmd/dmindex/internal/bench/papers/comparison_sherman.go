package papers

// likeSherman gives figures the servers of Sherman's paper, with 22 clients on each compute server.
func likeSherman(list []Comparison) []Comparison {
	for i := range list {
		c := &list[i]
		c.cluster, c.records, c.ops, c.warmupShare = clusterSize{memory: 8, compute: 8, each: 22}, 1_000_000, 300_000, 0.2
		c.inserted, c.table = true, stepsTable
	}
	return list
}

// claim is what Sherman's paper says of a step; 0 = it does not. Latencies are given as how many
// times lower they are than those of the first step.
type claim struct {
	mops       float64
	throughput float64 // over that of the first step
	p50, p99   float64
}

// shermanSteps turn techniques on, one after the other.
var shermanSteps = stepsOf("sherman", "FG+", []step{
	{"+Combine", "combine"}, {"+On-Chip", "onChip"}, {"+Hierarchical", "hierarchical"}, {"+2-Level Ver", "twoLevelVersions"},
	{"+Write Combining", "writeCombining"}, // ours
	{"+Read Delegation", "readDelegation"}, // SMART's
})

// step is a technique that is on in its line and in all behind it.
type step struct{ name, adds string }

// stepsOf are a design without the techniques of the steps, and then with one more in each.
func stepsOf(design, first string, steps []step) (list []variant) {
	var off []string
	for _, s := range steps {
		off = append(off, s.adds)
	}
	list = append(list, variant{label: first, design: design, off: off})
	for n, s := range steps {
		list = append(list, variant{label: s.name, design: design, off: off[n+1:]})
	}
	return list
}

// shermanFigures are those of Sherman (SIGMOD 2022), section 5. Only its text and tables are used:
// heights of bars are not read off.
var shermanFigures = likeSherman([]Comparison{
	{
		Name: "sherman-5", title: "Sherman, figure 5: contributions of techniques, skewed workloads",
		variants: shermanSteps,
		parts: []comparedPart{
			{workload: "write-only", distribution: paperSkew, steps: []claim{4: {throughput: 24.7, p50: 1.2, p99: 35.8}}},
			{workload: "write-intensive", distribution: paperSkew, steps: []claim{
				1: {throughput: 3.37, p50: 1.14, p99: 3.18},
				2: {throughput: 3.37 * 3.06, p99: 3.18 * 3.48},
				3: {throughput: 3.37 * 3.06 * 2.22, p99: 3.18 * 3.48 * 2.68},
				4: {throughput: 23.6, p50: 1.4, p99: 30.2}}},
			{workload: "read-intensive", distribution: paperSkew, steps: []claim{1: {p99: 15.3 / 12.9}, 4: {p50: 1 / 1.02}}},
		},
		notes: []string{
			"The paper's ratios of write-intensive are products of the factors that its text gives for each step; those of the last step it gives as such.",
			"+Write Combining is ours and +Read Delegation is SMART's: the paper's Sherman is the line before these.",
			"Of read-intensive it says that throughput hardly changes, that +Combine lowers p99 from 15.3 to 12.9 µs, and that p50 ends 2% higher.",
			"Everything else stands in its diagram only.",
		},
	},
	{
		Name: "sherman-6", title: "Sherman, figure 6: contributions of techniques, uniform workloads",
		variants: shermanSteps,
		parts: []comparedPart{
			{workload: "write-only", distribution: "uniform", steps: []claim{4: {throughput: 1.24, p50: 1.24, p99: 2.01}}},
			{workload: "write-intensive", distribution: "uniform", steps: []claim{4: {throughput: 1.15, p50: 1.19, p99: 1.27}}},
			{workload: "read-intensive", distribution: "uniform"},
		},
		notes: []string{
			"The paper's text gives the ratios of all techniques together; those of single steps, and read-intensive, stand in its diagram only.",
			"+Write Combining is ours and +Read Delegation is SMART's: the paper's Sherman is the line before these.",
		},
	},
	{
		Name: "sherman-table3", title: "Sherman, table 3: range queries, skewed workloads",
		variants: []variant{shermanSteps[0], shermanVariant},
		parts: []comparedPart{
			{workload: "range-only", distribution: paperSkew, scan: 100, steps: []claim{{mops: 26.09}, {mops: 25.55}}},
			{workload: "range-only", distribution: paperSkew, scan: 1000, steps: []claim{{mops: 5.77}, {mops: 5.76}}},
			{workload: "range-write", distribution: paperSkew, scan: 100, steps: []claim{{mops: 7.74}, {mops: 14.08}}},
			{workload: "range-write", distribution: paperSkew, scan: 1000, steps: []claim{{mops: 2.49}, {mops: 3.12}}},
		},
		notes: []string{"The paper's throughputs are those of its table; it gives no latencies. Ranges are skewed, writes are taken to be uniform: with skewed ones FG+ could not make 7.74."},
	},
})
