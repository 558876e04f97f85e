package papers

// Words of several lines of the tables.
const (
	whyNoCollapse = "skew: the locks of popular leaves do not collapse in our Sherman, whose holders hand them on; where they do not, skew takes a factor of 3 and more (22a)"
	whyLeaf       = "program: a leaf of their Sherman has 32 such items, 3 KB; ours has 1 KiB, whatever the items"
	whyTwice      = "program: ours takes 2 WRITEs and 2 atomics for an update, theirs one of each"
	whyGrows      = "program: their Sherman keeps its span, and its leaves grow with the items; ours keeps 1 KiB"
)

const items96 = "keys of 32 B, values of 64 B, " // settings of smart-4

// smartClaims are those of SMART's paper (ACM TOS 20(3), 2024).
var smartClaims = []paperFigure{
	{
		paper: "SMART 4", figure: "smart-4", sizes: sizes{records: 60_000, warmup: 60_000, ops: 10_000},
		claims: []paperClaim{
			{"bytes of a lookup of 96 B: Sherman", 32.1 * 96, opBytes, place{"", "Sherman", items96 + "10000 MB"}, place{}, whyLeaf},
			{"bytes of a lookup of 96 B: radix tree", 1.1 * 96, opBytes, place{"", "SMART", items96 + "10000 MB"}, place{}, "half of a leaf of two cells, and what a cache that is not warm misses"},
			{"no cache, keys of 32 B: round trips of the radix tree over Sherman's", above, opReads, place{"", "SMART", items96 + "no cache, 1 clients"}, place{"", "Sherman", items96 + "no cache, 1 clients"}, ""},
		},
	},
	{
		paper: "SMART 4", figure: "five-claims-programs", sizes: sizes{warmup: 200_000, ops: 20_000},
		claims: []paperClaim{
			{"C, one memory server, items of 96 B: radix tree over Sherman", 45 / 4.17, throughput, place{"C", "SMART", items96 + "1 memory servers"}, place{"C", publishedSherman.label, items96 + "1 memory servers"}, whyLeaf},
			{"the same, leaves of 4 KiB", 45 / 4.17, throughput, place{"C", "SMART", items96 + "1 memory servers"}, place{"C", "leaves of 4 KiB", items96 + "1 memory servers"}, "leaves as theirs, so the claim is about their size; 77 million messages a second here, 45 there"},
		},
	},
	{
		paper: "SMART 14", figure: "smart-14", sizes: sizes{records: 60_000, warmup: 100_000, ops: 20_000},
		claims: []paperClaim{
			{"LOAD: SMART over Sherman", 1.6, throughput, place{"LOAD", "SMART", ""}, place{"LOAD", publishedSherman.label, ""}, "60,000 records get 120,000 more, so leaves of Sherman split all the time: 1.9 with 234,375 records, 1.3 with 45 million messages (five-claims-causes)"},
			{"A: SMART over Sherman", 6.1, throughput, place{"A", "SMART", ""}, place{"A", publishedSherman.label, ""}, whyNoCollapse},
			{"B: SMART over Sherman", 2.4, throughput, place{"B", "SMART", ""}, place{"B", publishedSherman.label, ""}, "77 million messages a second here, 45 there (then 2.6, to Sherman with delegation and combining)"},
			{"C: SMART over Sherman", 2.8, throughput, place{"C", "SMART", ""}, place{"C", publishedSherman.label, ""}, "77 million messages a second here, 45 there (then 3.4); and their Sherman READs 730 bytes by our count, ours 1,024"},
			{"D: SMART over Sherman", 2.4, throughput, place{"D", "SMART", ""}, place{"D", publishedSherman.label, ""}, "as B"},
			{"uniform A: SMART over Sherman", 1.7, throughput, place{"uniform A", "SMART", ""}, place{"uniform A", publishedSherman.label, ""}, ""},
			{"uniform C: SMART over Sherman", 2.5, throughput, place{"uniform C", "SMART", ""}, place{"uniform C", publishedSherman.label, ""}, "as C"},
			{"A to Sherman with delegation and combining", 4.7, throughput, place{"A", "SMART", ""}, place{"A", "Sherman", ""}, whyNoCollapse},
			{"A: p99 of Sherman over SMART's", 1.4, p99, place{"A", publishedSherman.label, ""}, place{"A", "SMART", ""}, "ours is at the same number of clients, with both NICs full; theirs does not say"},
			{"C: million lookups a second", 96, throughput, place{"C", "SMART", ""}, place{}, ""},
			{"C: share of lookups that are delegated", 0.078, delegated, place{"C", "SMART", ""}, place{}, "program: ours shares a READ only while it stands in line; joining one that is posted could answer with a value older than a completed write"},
		},
	},
	{
		paper: "SMART 17", figure: "smart-17", sizes: sizes{records: 60_000, warmup: 10_000, ops: 3_000},
		claims: []paperClaim{
			{"scans, values of 8 B: SMART over Sherman", below, throughput, place{"", "SMART", "values of 8 B"}, place{"", "Sherman", "values of 8 B"}, ""},
			{"scans, values of 128 B: SMART over Sherman", above, throughput, place{"", "SMART", "values of 128 B"}, place{"", "Sherman", "values of 128 B"}, "of records that were bulk loaded; inserted ones lie apart, and SMART stays below Sherman up to 128 B"},
			{"scans, values of 256 B: SMART over Sherman", above, throughput, place{"", "SMART", "values of 256 B"}, place{"", "Sherman", "values of 256 B"}, ""},
		},
	},
	{
		paper: "SMART 18", figure: "smart-18", sizes: sizes{records: 60_000, warmup: 60_000, ops: 15_000},
		claims: []paperClaim{
			{"LOAD: lock-free inner nodes", 1.5, throughput, place{"LOAD", "+Lock-free inner nodes", ""}, place{"LOAD", "ART", ""}, "an insert takes 3.4 messages in place of 8.1, and messages bound both"},
			{"B: update in place", 1.5, throughput, place{"B", "+Update in place", ""}, place{"B", "+Lock-free inner nodes", ""}, "caches do not thrash: a changed slot makes a copy READ once"},
			{"A: rear lock", 3, throughput, place{"A", "+Rear lock", ""}, place{"A", "+Update in place", ""}, whyTwice},
			{"C: read delegation", 1.1, throughput, place{"C", "+Read delegation", ""}, place{"C", "+Rear lock", ""}, "program: ours shares a READ only while it stands in line, and NICs are busy 81%"},
			{"A: write combining", 1.1, throughput, place{"A", "+Write combining", ""}, place{"A", "+Read delegation", ""}, ""},
		},
	},
	{
		paper: "SMART 22a", figure: "smart-22-skew", sizes: sizes{records: 60_000, warmup: 60_000, ops: 15_000},
		claims: []paperClaim{
			{"A, from theta 0.5 to 0.99: what SMART loses", 2.6, throughput, place{"", "SMART", "zipfian:0.5"}, place{"", "SMART", "zipfian:0.99"}, "messages bound all of its rows here (96 to 98% of the time), so conflicts do not show"},
			{"A, from theta 0.5 to 0.99: what Sherman loses", 7.4, throughput, place{"", publishedSherman.label, "zipfian:0.5"}, place{"", publishedSherman.label, "zipfian:0.99"}, whyNoCollapse},
		},
	},
	{
		paper: "SMART 22a", figure: "five-claims-skew", sizes: sizes{warmup: 100_000, ops: 20_000},
		claims: []paperClaim{
			{"A, from theta 0.5 to 0.99: what Sherman loses, locks not handed over", 7.4, throughput, place{"", notHandedOver.label, "zipfian:0.5"}, place{"", notHandedOver.label, "zipfian:0.99"}, "less than theirs; it grows with the length of the run, and we think that their locks are handed over less than ours"},
			{"A, theta 0.99: SMART over Sherman, locks not handed over", 6.1, throughput, place{"", "SMART", "zipfian:0.99"}, place{"", notHandedOver.label, "zipfian:0.99"}, "skew: what skew takes from a Sherman whose locks are not handed over"},
		},
	},
	{
		paper: "SMART 22b, c", figure: "smart-22-size", sizes: sizes{records: 60_000, warmup: 60_000, ops: 10_000},
		claims: []paperClaim{
			{"C, keys from 8 to 256 B: what SMART loses", 1.3, throughput, place{"", "SMART", "keys of 8 B"}, place{"", "SMART", "keys of 256 B"}, ""},
			{"C, keys from 8 to 256 B: what Sherman loses", 14, throughput, place{"", "Sherman", "keys of 8 B"}, place{"", "Sherman", "keys of 256 B"}, whyGrows},
			{"C, values from 8 to 1,024 B: what SMART loses", 3.1, throughput, place{"", "SMART", "keys of 8 B"}, place{"", "SMART", "values of 1024 B"}, "values above 256 B lie in a block of their own here, which is a READ more"},
			{"C, values from 8 to 1,024 B: what Sherman loses", 64, throughput, place{"", "Sherman", "keys of 8 B"}, place{"", "Sherman", "values of 1024 B"}, whyGrows},
		},
	},
	{
		paper: "SMART 22f", figure: "smart-22-size", sizes: sizes{records: 60_000, warmup: 60_000, ops: 10_000},
		claims: []paperClaim{
			{"C, from one memory server to four: SMART", above, throughput, place{"", "SMART", "4 memory servers"}, place{"", "SMART", "1 memory servers"}, ""},
			{"C, from one memory server to four: Sherman", above, throughput, place{"", "Sherman", "4 memory servers"}, place{"", "Sherman", "1 memory servers"}, ""},
		},
	},
	{
		paper: "SMART 22d", figure: "smart-3", sizes: sizes{warmup: 60_000, ops: 10_000},
		claims: []paperClaim{
			{"C: nodes of several sizes over one", 1.5, throughput, place{"", "SMART", "100 MB"}, place{"", "one type of node", "100 MB"}, ""},
		},
	},
	{
		paper: "SMART 22g, h", figure: "smart-22-items", sizes: sizes{records: 60_000, warmup: 60_000, ops: 20_000},
		claims: []paperClaim{
			{"C, 60 million items: share of lookups that are delegated", 0.119, delegated, place{"C", "SMART", "60 million ranks"}, place{}, "program: as in figure 14; and half of the compute servers"},
		},
	},
}
