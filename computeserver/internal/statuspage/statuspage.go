// Package statuspage draws what a compute server knows of its index as one web page: the servers,
// their ranges, and what this server did in the last hour. The page needs nothing else: no script,
// no other file. It is made of what the caller gives, in which there are no keys.
//
//	+--------------------------------------------+
//	| index, design, this server, its state      |
//	| four curves of the last hour (History)     |
//	| servers: rate, hits, connections, errors   |
//	| ranges: keys, owner, rate, state           |
//	| commands of this server, slow pipelines    |
//	+--------------------------------------------+
package statuspage

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"time"
)

// Bounds of what one page shows; the rest is counted.
const (
	MaxServers  = 64
	MaxRanges   = 128
	MaxCommands = 16
	MaxSlow     = 16
)

// Page is what is shown. All texts may be anything: they are escaped.
type Page struct {
	Index, Design, Version string
	Server                 uint32 // that draws the page
	Generation             uint64 // of the partition map; 0 = there is none
	Trouble                string // why the server is not ready; empty = it is
	Now                    time.Time

	History  []Sample // oldest first
	Servers  []Server
	Ranges   []Range
	Commands []Command // most frequent first
	Slow     []Slow    // pipelines of RESP, the last one first
}

// Server is a row of the servers.
type Server struct {
	ID          uint32
	Name        string
	Trouble     string  // empty = it answered, and is well
	Answered    bool    // else there is nothing but what stands above
	Operations  float64 // in a second, of late
	HitRatio    float64 // 0 to 1
	Reads       float64 // READs of an operation
	Connections uint64  // RESP
	Total       uint64  // requests of programs since its start
	Forwarded   uint64  // of them sent on to another server
	Errors      uint64  // of them
	CacheBytes  uint64
	Ranges      int
	Version     string
}

// Range is a row of the ranges.
type Range struct {
	Keys       string // as digests
	Owner      uint32
	Operations float64 // in a second, of late; below 0 = not known
	State      string
	Reason     string // what is waited for
}

// Command is a row of the commands, or kinds of operations, that this server was sent.
type Command struct {
	FrontEnd, Name    string
	OK, Missed, Error uint64
}

// Slow is a row of the slow pipelines of this server.
type Slow struct {
	At       time.Time
	Took     time.Duration
	Command  string // the first one
	Commands uint64 // of the pipeline
}

//go:embed page.html
var text string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"rate": rate, "count": count, "bytes": bytesOf, "share": share, "decimal": decimal, "curve": curve,
	"shareOf":      func(part, all uint64) string { return share(float64(part) / float64(max(1, all))) },
	"milliseconds": func(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) },
	"clock":        func(t time.Time) string { return t.UTC().Format("15:04:05") },
}).Parse(text))

// Write writes the page. Of its tables it shows as many as the bounds allow.
func Write(w io.Writer, p *Page) error {
	return page.Execute(w, struct {
		*Page
		Curves                           []Curve
		MoreServers, MoreRanges, Refresh int
	}{limited(p), curves(p.History), max(0, len(p.Servers)-MaxServers), max(0, len(p.Ranges)-MaxRanges), int(Every / time.Second)})
}

// limited is p with no more rows than the bounds allow.
func limited(p *Page) *Page {
	q := *p
	q.Servers = q.Servers[:min(len(q.Servers), MaxServers)]
	q.Ranges = q.Ranges[:min(len(q.Ranges), MaxRanges)]
	q.Commands = q.Commands[:min(len(q.Commands), MaxCommands)]
	q.Slow = q.Slow[:min(len(q.Slow), MaxSlow)]
	return &q
}

// rate is a number in a second, with three digits.
func rate(v float64) string {
	switch {
	case v < 0 || math.IsNaN(v):
		return "-"
	case v >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.3gk", v/1e3)
	case v >= 10:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// count is a whole number with a comma before each three digits.
func count(v uint64) string {
	digits := fmt.Sprint(v)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

func bytesOf(v uint64) string { return fmt.Sprintf("%.1f MiB", float64(v)/(1<<20)) }

func share(v float64) string {
	if v < 0 || math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*v)
}

func decimal(v float64) string { return fmt.Sprintf("%.2f", v) }
