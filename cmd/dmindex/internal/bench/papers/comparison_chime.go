package papers

// chimeCluster has the servers of CHIME's paper, one memory server and ten compute servers, with 32
// clients each, as in its factor analysis.
var chimeCluster = clusterSize{memory: 1, compute: 10, each: 32}

// chimeCache is what each compute server has in the paper, in MB for 60 million records. CHIME's
// hotspots lie in it here: the paper gives them 30 MB more.
const chimeCache = 100

var (
	smartOpt = variant{label: "SMART, all cached", design: "smart", allCached: true}
	// caches that hold all inner nodes, and have no room besides: what they keep to find nodes by
	// grows with their bound
	roomySmart  = variant{label: "SMART", design: "smart", cache: 2000}
	coldChime   = variant{label: "CHIME without hotspots", design: "chime", off: []string{"speculativeRead"}, cache: 100}
	lockedChime = []string{"speculativeRead", "siblingValidation", "metadataReplication", "vacancyBitmap"}
)

// doublesNote says what LOAD is of a comparison that doubles.
const doublesNote = "LOAD is measured over as many insertions as there are records."

// chimeFigures are those of CHIME (SOSP 2024), sections 3 and 5. Only its text is used: what stands
// in diagrams alone is not read off.
var chimeFigures = []Comparison{
	{
		Name: "chime-3a", title: "CHIME, figure 3a: cache and read amplification, read-only, all inner nodes cached", cluster: clusterSize{1, 1, 16}, warmup: 400_000, ops: 5_000,
		variants: []variant{
			{label: "Sherman, 256 B", design: "sherman", node: 256, cache: 400},
			{label: "Sherman, 512 B", design: "sherman", node: 512, cache: 200},
			{label: "Sherman, 1 KiB", design: "sherman", cache: 100},
			{label: "Sherman, 2 KiB", design: "sherman", node: 2048, cache: 100},
			roomySmart,
			coldChime,
		},
		parts: []comparedPart{{workload: "C", distribution: "uniform"}},
		notes: []string{"Bytes of a lookup over 16 are its read amplification."},
	},
	{
		Name: "chime-3", title: "CHIME, figures 3b and c: limited bandwidth, and limited caches, read-only", cluster: chimeCluster, warmup: 300_000, cache: chimeCache,
		variants: []variant{shermanVariant, smartVariant, chimeVariant},
		settings: []setting{
			all(withMemory(1), withCache(1000), withEach(64)),
			all(withMemory(10), withCache(chimeCache), withEach(48)),
		},
		parts: []comparedPart{{workload: "C", distribution: paperSkew, claims: []float64{1, 1 / 5.9}}},
		notes: []string{"The paper: with one memory server Sherman does a 4.9th of SMART; with ten and caches of 100 MB SMART does a 5.9th of Sherman."},
	},
	{
		Name: "chime-4", title: "CHIME, figure 4: the cost of metadata of leaves that are READ apart", cluster: chimeCluster, warmup: 200_000, cache: chimeCache,
		doubles: true,
		variants: []variant{
			chimeVariant,
			{label: "CHIME -vacancyBitmap", design: "chime", off: []string{"vacancyBitmap"}},
			{label: "CHIME -metadataReplication", design: "chime", off: []string{"metadataReplication"}},
			{label: "CHIME -speculativeRead", design: "chime", off: []string{"speculativeRead"}},
		},
		settings: []setting{withEach(64)},
		parts: []comparedPart{
			{workload: "LOAD", distribution: "uniform"},
			{workload: "C", distribution: paperSkew},
		},
		notes: []string{doublesNote, "The paper READs pieces of memory, without an index: the vacancy map apart makes 1.8 times less, the metadata apart 1.8 times less, a neighbourhood of 8 in place of one entry 1.3 times less."},
	},
	{
		Name: "chime-12", title: "CHIME, figure 12: YCSB", cluster: clusterSize{1, 10, 64}, warmup: 300_000, cache: chimeCache,
		doubles:  true,
		variants: []variant{shermanVariant, publishedSherman, smartVariant, smartOpt, chimeVariant},
		parts: []comparedPart{
			{workload: "LOAD", distribution: "uniform", claims: []float64{1, 0, 1.6 / 1.2, 0, 1.6}},
			{workload: "A", distribution: paperSkew, claims: []float64{1, 0, 2.2 / 2.5, 0, 2.2}},
			{workload: "B", distribution: paperSkew, claims: []float64{1, 0, 3.6 / 4.1, 0, 3.6}},
			{workload: "C", distribution: paperSkew, claims: []float64{1, 0, 4.3 / 5.1, 0, 4.3}},
			{workload: "D", distribution: "latest", claims: []float64{1, 0, 4.2 / 4.4, 0, 4.2}},
		},
		notes: []string{doublesNote, "The paper's ratios are those of its text, at peak throughput. Its Sherman has read delegation and write combining, too."},
	},
	{
		Name: "chime-12-scan", title: "CHIME, figure 12: YCSB E", cluster: clusterSize{1, 10, 64}, warmup: 5_000, ops: 3_000, cache: chimeCache,
		variants: []variant{
			shermanVariant, smartVariant, smartOpt, chimeVariant,
			{label: "CHIME, span 32", design: "chime", node: 1152},
			{label: "CHIME, span 16", design: "chime", node: 640},
		},
		parts: []comparedPart{{workload: "E", distribution: paperSkew, claims: []float64{1, 1.2 / 2.5, 1.2 / 2.5, 1.2}}},
		notes: []string{"The paper's ratios are those of its text, at peak throughput."},
	},
	{
		Name: "chime-13", title: "CHIME, figure 13: items of variable length, keys of 40 bytes and values of 512, in blocks outside of leaves", cluster: chimeCluster, warmup: 200_000, ops: 20_000, cache: chimeCache,
		doubles:  true,
		variants: []variant{shermanVariant, smartVariant, chimeVariant},
		settings: []setting{all(withKeys(40), withValues(512))},
		parts: []comparedPart{
			{workload: "LOAD", distribution: "uniform"},
			{workload: "A", distribution: paperSkew},
			{workload: "C", distribution: paperSkew},
			{workload: "E", distribution: paperSkew},
		},
		notes: []string{doublesNote, "The paper gives numbers for these in its diagram only."},
	},
	{
		Name: "chime-14", title: "CHIME, figure 14: cache that holds all inner nodes, by the number of records (a 256th of each is here)", cluster: clusterSize{1, 1, 16}, warmup: 600_000, ops: 5_000,
		variants: []variant{{label: "Sherman", design: "sherman", cache: 100}, roomySmart, coldChime},
		settings: []setting{withRecords(40), withRecords(60), withRecords(120)},
		parts:    []comparedPart{{workload: "C", distribution: "uniform"}},
		notes:    []string{"The paper, with 60 million: CHIME 27.6 MB (0.46 bytes an item), Sherman 23.6 (0.39), SMART 503.2 (8.39)."},
	},
	{
		Name: "chime-15a", title: "CHIME, figure 15a: contributions of techniques, from Sherman on", cluster: chimeCluster, warmup: 200_000, cache: chimeCache,
		doubles: true,
		variants: []variant{
			shermanVariant,
			{label: "+Hopscotch leaf", design: "chime", off: lockedChime},
			{label: "+Vacancy bitmap", design: "chime", off: lockedChime[:3]},
			{label: "+Metadata replication", design: "chime", off: lockedChime[:2]},
			{label: "+Sibling validation", design: "chime", off: lockedChime[:1]},
			{label: "+Speculative read", design: "chime"},
		},
		parts: []comparedPart{
			{workload: "LOAD", distribution: "uniform", claims: []float64{1, 1, 1.6, 0, 0, 0}},
			{workload: "A", distribution: paperSkew},
			{workload: "C", distribution: paperSkew, claims: []float64{1, 2.3, 2.3, 2.3 * 1.6, 0, 0}},
		},
		notes: []string{doublesNote, "The paper's factors of single steps are multiplied."},
	},
	{
		Name: "chime-16", title: "CHIME, figure 16: sibling-based validation, by the size of keys", cluster: chimeCluster, warmup: 200_000, ops: 30_000, cache: chimeCache,
		variants: []variant{
			{label: "fences", design: "chime", off: []string{"siblingValidation", "speculativeRead"}},
			{label: "siblings", design: "chime", off: []string{"speculativeRead"}},
		},
		settings: []setting{withKeys(8), withKeys(16), withKeys(32)},
		parts:    []comparedPart{{workload: "C", distribution: paperSkew}},
		notes:    []string{"The paper counts the bytes of metadata: 1.4 times fewer with keys of 8 bytes, 8.6 with 256. Our fences lie once in each leaf, so what they cost is a READ and its bytes. Keys above 32 bytes do not lie in leaves."},
	},
	{
		Name: "chime-17", title: "CHIME, figure 17: speculative reads", cluster: chimeCluster, warmup: 300_000, cache: chimeCache,
		variants: []variant{{label: "without", design: "chime", off: []string{"speculativeRead"}}, {label: "with", design: "chime"}},
		settings: []setting{withEach(16), withEach(32), withEach(64), withEach(96)},
		parts:    []comparedPart{{workload: "C", distribution: paperSkew, claims: []float64{1, 1.2}}},
		notes:    []string{"The paper: nothing with 320 clients, up to 1.2 times above 500."},
	},
	{
		Name: "chime-18-skew", title: "CHIME, figure 18a: by skew, half updates", cluster: chimeCluster, warmup: 200_000, ops: 30_000, cache: chimeCache,
		variants: []variant{shermanVariant, smartVariant, chimeVariant},
		settings: []setting{withTheta(0.5), withTheta(0.9), withTheta(0.99)},
		parts:    []comparedPart{{workload: "A", distribution: paperSkew}},
		notes:    []string{"The paper: CHIME and Sherman gain a little with skew, SMART loses."},
	},
	{
		Name: "chime-18-cache", title: "CHIME, figure 18b: by the cache of each compute server, read-only", cluster: clusterSize{1, 10, 64}, warmup: 400_000, ops: 30_000,
		variants: []variant{shermanVariant, smartVariant, chimeVariant},
		settings: []setting{withCache(20), withCache(60), withCache(100), withCache(400), withCache(1600)},
		parts:    []comparedPart{{workload: "C", distribution: paperSkew}},
		notes:    []string{"The paper: all but SMART need less than 100 MB for their peak; SMART needs 400."},
	},
	{
		Name: "chime-18-size", title: "CHIME, figures 18c and d: by the size of values, read-only", cluster: clusterSize{1, 10, 64}, warmup: 200_000, ops: 30_000, cache: chimeCache,
		variants: []variant{shermanVariant, smartVariant, chimeVariant},
		settings: []setting{withValues(8), withValues(64), withValues(256), withValues(512)},
		parts:    []comparedPart{{workload: "C", distribution: paperSkew}},
		notes:    []string{"The paper, from 8 to 512 bytes in leaves: CHIME and Sherman lose a factor of 9.4, SMART 1.2. Values above 256 bytes lie outside of leaves here (its figure 18d)."},
	},
	{
		Name: "chime-18-span", title: "CHIME, figures 18e and 19a: by the span of leaves, read-only", cluster: clusterSize{1, 10, 64}, warmup: 200_000, ops: 30_000, cache: chimeCache,
		variants: []variant{
			{label: "Sherman, 256 B", design: "sherman", node: 256},
			shermanVariant,
			{label: "Sherman, 4 KiB", design: "sherman", node: 4 << 10},
			{label: "Sherman, 16 KiB", design: "sherman", node: 16 << 10},
			{label: "CHIME, span 16", design: "chime", node: 640},
			{label: "CHIME, span 32", design: "chime", node: 1152},
			{label: "CHIME, span 64", design: "chime"},
			{label: "CHIME, span 128", design: "chime", node: 4416},
			{label: "CHIME, span 512", design: "chime", node: 17472},
		},
		parts: []comparedPart{{workload: "C", distribution: paperSkew}},
		notes: []string{"The paper, from a span of 8 to one of 512: CHIME hardly changes, and is slower below 32; Sherman loses a factor of 18.6."},
	},
	{
		Name: "chime-18-hood", title: "CHIME, figures 18f and 19b: by the neighbourhood", cluster: clusterSize{1, 10, 64}, warmup: 300_000, cache: chimeCache,
		doubles: true,
		variants: []variant{
			{label: "8", design: "chime"},
			{label: "2", design: "chime", hood: 2},
			{label: "4", design: "chime", hood: 4},
			{label: "16", design: "chime", hood: 16},
		},
		parts: []comparedPart{
			{workload: "C", distribution: paperSkew},
			{workload: "LOAD", distribution: "uniform"},
		},
		notes: []string{doublesNote},
	},
	{
		Name: "chime-19c", title: "CHIME, figure 19c: by the bytes of hotspots, a quarter of the cache, read-only", cluster: clusterSize{1, 10, 64}, warmup: 1_000_000, ops: 30_000, cache: 120,
		variants: []variant{chimeVariant},
		settings: []setting{
			all(withCache(40), withRanks(likePaper)), all(withCache(80), withRanks(likePaper)), all(withCache(120), withRanks(likePaper)), all(withCache(200), withRanks(likePaper)),
			withCache(120),
		},
		parts: []comparedPart{{workload: "C", distribution: paperSkew}},
		notes: []string{"The paper: 81% of lookups from a buffer of 30 MB. As many ranks as records here, but in the last line."},
	},
}
