package papers

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
)

// setting is what differs from the experiment's other settings.
type setting struct {
	label  string
	change func(r *bench.Run)
	flags  []string // of the command, whose place it takes
}

// paperRecords is how many records the papers of SMART and CHIME have.
const paperRecords = 60_000_000

// likePaper is a 256th of them. A radix tree over so many hashed keys of 8 bytes has one level less
// than one over 60 million, and else the same shape: as many children of each node below.
const likePaper = paperRecords / 256

// scaledCache is a cache of so many MB for the papers' records, in proportion to ours.
func scaledCache(mb float64, records uint64) int {
	return max(1, int(mb*1e6*float64(records)/paperRecords))
}

// with is a setting that takes the place of flags.
func with(label string, change func(r *bench.Run), flags ...string) setting {
	return setting{label, change, flags}
}

func withCache(mb float64) setting {
	return with(fmt.Sprintf("%g MB", mb), func(r *bench.Run) { r.CacheBytes = scaledCache(mb, r.Records) })
}

func withShare(percent float64) setting {
	return with(fmt.Sprintf("cache of %g%%", percent), func(r *bench.Run) { r.CacheBytes = r.ItemsShare(percent) })
}

func withEach(n int) setting {
	return with(fmt.Sprintf("%d clients", n), func(r *bench.Run) { r.Clients = n * r.ComputeServers }, "clients")
}

func withKeys(n int) setting {
	return with(fmt.Sprintf("keys of %d B", n), func(r *bench.Run) { r.KeyBytes, r.Uint64 = n, n == 8 }, "key")
}

func withValues(n int) setting {
	return with(fmt.Sprintf("values of %d B", n), func(r *bench.Run) { r.ValueBytes = n }, "value")
}

func withMemory(n int) setting {
	return with(fmt.Sprintf("%d memory servers", n), func(r *bench.Run) { r.MemoryServers = n })
}

func withRecords(millions float64) setting {
	return with(fmt.Sprintf("%g million", millions), func(r *bench.Run) { r.Records = uint64(millions * 1e6 / 256) }, "records")
}

func withTheta(theta float64) setting {
	return with(fmt.Sprintf("zipfian:%g", theta), func(r *bench.Run) { r.Distribution = workload.Distribution{Theta: theta, Ranks: 1e9} })
}

func withRanks(n uint64) setting {
	return with(fmt.Sprintf("%.3g million ranks", float64(n)/1e6), func(r *bench.Run) { r.Distribution.Ranks = n })
}

func withRate(millions float64) setting {
	return with(fmt.Sprintf("%g million messages", millions), func(r *bench.Run) { r.MessageRate = millions }, "message-rate")
}

func withScan(n int) setting {
	return with(fmt.Sprintf("scans of %d", n), func(r *bench.Run) { r.ScanFrom, r.ScanTo = n, n })
}

func withUniform() setting {
	return with("uniform", func(r *bench.Run) { r.Distribution = workload.Distribution{} })
}

func withItems(n uint64) setting {
	return with(fmt.Sprintf("%d items", n), func(r *bench.Run) { r.Records = n }, "records")
}

// withTransport is a fabric of this machine, where NICs and processors are what they are.
func withTransport(name string) setting {
	return with(name, func(r *bench.Run) { r.Transport = name }, "message-rate", "processor-time")
}

// all is several changes.
func all(list ...setting) setting {
	labels, flags := make([]string, len(list)), []string(nil)
	for i, s := range list {
		labels[i], flags = s.label, append(flags, s.flags...)
	}
	return setting{strings.Join(labels, ", "), func(r *bench.Run) {
		for _, s := range list {
			s.change(r)
		}
	}, flags}
}

// growth is settings that follow from one number, and from what base has at most.
type growth struct {
	title    string // of what grows
	flag     string // of the command, whose place it takes
	ratios   bool   // each throughput has its ratio to that of the first variant beside it
	settings func(base *bench.Run) []setting
}

// growing is a growth whose settings are the same for every base.
func growing(title, label string, points []float64, change func(r *bench.Run, v float64)) *growth {
	var list []setting
	for _, v := range points {
		list = append(list, with(fmt.Sprintf(label, v), func(r *bench.Run) { change(r, v) }))
	}
	return &growth{title: title, settings: func(*bench.Run) []setting { return list }}
}

// growingClients has clients by shares of those of one compute server, and compute servers with
// them, when those that there are have their share.
func growingClients(shares ...float64) *growth {
	return &growth{title: "clients", settings: func(base *bench.Run) (list []setting) {
		each := max(1, base.Clients/base.ComputeServers)
		for _, share := range shares {
			n := max(1, min(base.Clients, int(share*float64(each))))
			if label := strconv.Itoa(n); len(list) == 0 || list[len(list)-1].label != label {
				servers := min(base.ComputeServers, (n+each-1)/each)
				list = append(list, with(label, func(r *bench.Run) { r.Clients, r.ComputeServers = n, servers }))
			}
		}
		return list
	}}
}

func growingCache(percent ...float64) *growth {
	return growing("cache of each compute server, in percent of all leaves", "%g%%", percent, func(r *bench.Run, v float64) { r.CachePercent = v })
}

// growingThreads is of each memory server, for calls.
func growingThreads(n ...float64) *growth {
	return growing("threads of each memory server", "%g", n, func(r *bench.Run, v float64) { r.MemoryThreads = int(v) })
}

// growingProcessor is the processor time of operations, in times of what was measured.
func growingProcessor(times ...float64) *growth {
	g := growing("times the processor time that was measured", "%gx", times, func(r *bench.Run, v float64) { r.ProcessorScale = v })
	g.flag, g.ratios = "processor-time", true
	return g
}
