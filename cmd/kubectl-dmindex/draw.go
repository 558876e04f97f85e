package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// status draws the index.
func (v *view) status(now time.Time) string {
	var b strings.Builder
	if v.leaderless != "" {
		b.WriteString(v.leaderless + "\n\n")
	}
	spec := v.index.Spec
	keys := "Uint64 keys"
	if spec.Key.MaxLength != nil && spec.Key.Type == dmv1.KeyBytes {
		keys = fmt.Sprintf("keys of up to %d bytes", *spec.Key.MaxLength)
	}
	fmt.Fprintf(&b, "%s  %s, %s, values of up to %d, durability %s\n", v.index.Name, spec.Design, keys, spec.Value.MaxLength, v.durability())
	if age := now.Sub(v.index.CreationTimestamp.Time); len(v.index.Status.Conditions) == 0 && age > unseenFor {
		fmt.Fprintf(&b, "  no operator has looked at it in the %s since it was made: name the namespace %s in watchNamespaces of the chart (with kustomize: --namespace of the operator, and a RoleBinding there)\n", duration.HumanDuration(age), v.index.Namespace)
	}
	said := map[string]bool{} // reasons whose meaning was told
	for _, c := range v.index.Status.Conditions {
		if c.Type == dmv1.ConditionAvailable || c.Status == "True" {
			fmt.Fprintf(&b, "  %s=%s for %s  %s: %s\n", c.Type, c.Status, duration.HumanDuration(now.Sub(c.LastTransitionTime.Time)), c.Reason, orDash(c.Message))
			if !said[c.Reason] && (c.Type != dmv1.ConditionAvailable || c.Status != "True") {
				said[c.Reason] = true
				b.WriteString(explain(c.Reason, "    "))
			}
		}
	}
	v.drawPools(&b, now, said)
	b.WriteByte('\n')
	v.drawMemory(&b)
	b.WriteByte('\n')
	v.drawVolumes(&b)
	v.drawCompute(&b)
	b.WriteByte('\n')
	v.drawRanges(&b)
	v.drawGoingOn(&b)
	v.drawBackups(&b, now, said)
	v.drawEvents(&b, now)
	return b.String()
}

// unseenFor is how long an operator that is there may leave a new index without a condition.
const unseenFor = 30 * time.Second

// table writes lines of columns, of which the first has all.
func table(b *strings.Builder, write func(line func(columns ...any))) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	width := 0
	write(func(columns ...any) {
		width = max(width, len(columns))
		for i := range width {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			if i < len(columns) {
				fmt.Fprint(w, columns[i])
			}
		}
		fmt.Fprintln(w)
	})
	_ = w.Flush() // a builder takes everything
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(b, strings.TrimRight(line, " \n"))
	}
}

// bar draws a share of 1 in ten places, and in figures.
func bar(share float64) string {
	const places = 10
	n := min(places, max(0, int(share*places+0.5)))
	return strings.Repeat("█", n) + strings.Repeat("·", places-n) + fmt.Sprintf(" %3.0f %%", 100*share)
}

func (v *view) drawMemory(b *strings.Builder) {
	servers := map[string]dmv1.MemoryServerState{}
	for _, p := range v.memory {
		for _, s := range p.Status.Servers {
			servers[s.Pod] = s
		}
	}
	columns := []any{"MEMORY SERVER", "ID", "STATE", "NODE", "PATH", "CHUNKS", "GRANTED", "QUOTA", "USED", "LOCKS"}
	claims := slices.ContainsFunc(v.memory, func(p *dmv1.DMMemoryPool) bool { return p.Spec.Persistence != nil })
	if claims {
		columns = append(columns, "CLAIM")
	}
	table(b, func(line func(...any)) {
		line(columns...)
		for _, m := range v.index.Status.MemoryServers {
			s, granted := servers[m.Pod], "-"
			if s.Chunks > 0 {
				granted = bar(float64(s.ChunksGranted) / float64(s.Chunks))
			}
			used := "-"
			if m.QuotaChunks > 0 {
				used = bar(float64(m.UsedChunks) / float64(m.QuotaChunks))
			}
			columns := []any{m.Pod, m.ID, m.State, orDash(s.Node), path(m), s.Chunks, granted, m.QuotaChunks, used, locks(m)}
			if claims {
				columns = append(columns, orDash(s.Claim))
			}
			line(columns...)
		}
	})
}

// path is how compute servers reach a memory server, and by which device of its node.
func path(m dmv1.IndexMemoryServer) string {
	if m.Device != "" {
		return string(m.Transport) + " " + m.Device
	}
	return orDash(string(m.Transport))
}

// locks is how many locks of a memory server the index has, and where they lie.
func locks(m dmv1.IndexMemoryServer) string {
	if m.Locks == 0 {
		return "-"
	}
	return fmt.Sprintf("%d %s", m.Locks, m.LockPlacement)
}

// paths are by what a compute server reaches the memory servers; where there are several, with
// their ids.
func paths(list []dmv1.MemoryPath) string {
	var texts []string
	for _, p := range list {
		text := string(p.Transport)
		if p.Device != "" {
			text += " " + p.Device
		}
		if len(list) > 1 {
			text += " to " + strings.Trim(fmt.Sprint(p.MemoryServers), "[]")
			if more := int(p.Count) - len(p.MemoryServers); more > 0 {
				text += fmt.Sprintf(" and %d more", more)
			}
		}
		texts = append(texts, text)
	}
	return orDash(strings.Join(texts, ", "))
}

// total is how many operations a second all servers do together.
func (v *view) total() (sum float64) {
	for _, a := range v.asked {
		sum += a.said.GetLoad().GetOperationsPerSecond()
	}
	return sum
}

func share(part, all float64) string {
	if all <= 0 {
		return "-"
	}
	return bar(part / all)
}

func (v *view) drawCompute(b *strings.Builder) {
	total := v.total()
	table(b, func(line func(...any)) {
		line("COMPUTE SERVER", "ID", "STATE", "RANGES", "OPS/S", "SHARE OF LOAD", "CACHE HITS", "READS/OP", "CACHE", "PATHS")
		for _, a := range v.asked {
			if a.said == nil {
				line(a.Pod, a.ID, a.State, a.Ranges, "no answer")
				continue
			}
			load := a.said.GetLoad()
			line(a.Pod, a.ID, a.State, a.Ranges, rate(load.GetOperationsPerSecond()), share(load.GetOperationsPerSecond(), total),
				hits(load), reads(load), size(a.said.CacheBytes), paths(a.Paths))
		}
	})
}

func rate(v float64) string { return fmt.Sprintf("%.0f", v) }

// hits and reads mean nothing without operations.
func hits(l *rpcv1.ComputeLoad) string {
	if l.GetOperationsPerSecond() < 0.5 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*l.GetHitRatio())
}

func reads(l *rpcv1.ComputeLoad) string {
	if l.GetOperationsPerSecond() < 0.5 {
		return "-"
	}
	return fmt.Sprintf("%.2f", l.GetReadsPerOperation())
}

func size(bytes uint64) string {
	const mi = 1 << 20
	if bytes < 10*mi {
		return fmt.Sprintf("%.1fMi", float64(bytes)/mi)
	}
	return fmt.Sprintf("%dMi", bytes/mi)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// drawBound is a key as it is drawn.
func (v *view) drawBound(key []byte, end bool) string {
	switch {
	case len(key) == 0 && end:
		return "end"
	case len(key) == 0:
		return `""`
	case v.digests:
		return digest(key)
	}
	return fmt.Sprintf("%q", key)
}

func (v *view) drawRanges(b *strings.Builder) {
	m := v.index.Status.Map
	if m == nil {
		b.WriteString("there is no partition map yet\n")
		return
	}
	fmt.Fprintf(b, "partition map %d: %d ranges", m.Generation, m.RangeCount)
	if int(m.RangeCount) > len(m.Ranges) {
		fmt.Fprintf(b, ", the first %d of them:", len(m.Ranges))
	}
	b.WriteByte('\n')
	starts := make([]rangeStart, len(m.Ranges)+1)
	for i, r := range m.Ranges {
		starts[i] = startOf(&r)
	}
	total := v.total()
	table(b, func(line func(...any)) {
		line("FROM", "UP TO", "OWNER", "EPOCH", "OPS/S", "SHARE OF LOAD", "HELD")
		var last *rpcv1.OwnedRange // that began at a range above, and has the same owner
		for i, r := range m.Ranges {
			ops, part, state, own := v.held(r.Owner, starts[i].digest, total)
			switch {
			case state != "-" || i > 0 && m.Ranges[i-1].Owner != r.Owner || last != nil && bytes.Equal(last.End, starts[i].digest):
				last = own
			case last != nil:
				state = stateOf(last) + ", counted above"
			}
			line(v.start(starts[i], false), v.start(starts[i+1], true), r.Owner, r.Epoch, ops, part, state)
		}
	})
}

// rangeStart is where a range begins, as the status says it.
type rangeStart struct {
	key    []byte
	digest []byte // empty for the first range
	hidden bool   // the status does not show the key
}

// startOf reads a mirror. One that cannot be read shows as the first key.
func startOf(r *dmv1.PartitionRange) (s rangeStart) {
	s.key, _ = base64.StdEncoding.DecodeString(r.Start)
	s.digest, _ = hex.DecodeString(r.Digest)
	s.hidden = r.Start == "" && r.Digest != ""
	return s
}

// start is where a range begins, as it is drawn.
func (v *view) start(s rangeStart, end bool) string {
	if (s.hidden || v.digests) && len(s.digest) > 0 {
		return "#" + hex.EncodeToString(s.digest)
	}
	return v.drawBound(s.key, end)
}

// held says how the range that begins at a key fares: with designs whose ranges have owners, it is
// held by its owner, or on its way there. Neighbours of one owner may be held as one range, whose
// load is counted at the first of them. own is what the owner holds from that key on; nil if no
// range of its own begins there.
func (v *view) held(owner string, start []byte, total float64) (ops, part, state string, own *rpcv1.OwnedRange) {
	ops, part, state = "-", "-", "-"
	for _, a := range v.asked {
		for _, r := range a.said.GetRanges() {
			if !bytes.Equal(r.Start, start) {
				continue
			}
			switch {
			case a.Pod == owner && (state == "-" || r.State != "Acquiring"):
				ops, part, state, own = rate(r.OperationsPerSecond), share(r.OperationsPerSecond, total), stateOf(r), r
			case a.Pod != owner:
				state = stateOf(r) + " at " + a.Pod
			}
		}
	}
	return ops, part, state, own
}

func stateOf(r *rpcv1.OwnedRange) string {
	if r.PoolFull {
		return r.State + " (pool full)"
	}
	return r.State
}

// drawGoingOn says what is not as it should be, or on its way.
func (v *view) drawGoingOn(b *strings.Builder) {
	var lines []string
	for _, a := range v.asked {
		if a.err != nil {
			lines = append(lines, fmt.Sprintf("%s does not answer: %v", a.Pod, a.err))
			continue
		}
		if a.said.Draining {
			lines = append(lines, a.Pod+" drains")
		}
		if a.said.DataLost != "" {
			lines = append(lines, a.Pod+" answers nothing: "+a.said.DataLost)
		}
		for i, r := range a.said.Ranges {
			if r.State == "Serving" && !r.PoolFull {
				continue
			}
			text := fmt.Sprintf("%s, range %d of %d: %s", a.Pod, i+1, len(a.said.Ranges), r.State)
			switch {
			case r.PoolFull:
				text += ", waits for memory: " + r.Reason
			case r.Reason != "":
				text += ", waits: " + r.Reason
			}
			lines = append(lines, text)
		}
		if m := v.index.Status.Map; m != nil && a.said.MapGeneration != uint64(m.Generation) {
			lines = append(lines, fmt.Sprintf("%s acts on partition map %d", a.Pod, a.said.MapGeneration))
		}
	}
	for _, n := range v.notes {
		lines = append(lines, "not seen: "+n)
	}
	b.WriteString("\ngoing on:\n")
	if len(lines) == 0 {
		b.WriteString("  nothing\n")
	}
	for _, l := range lines {
		fmt.Fprintf(b, "  %s\n", l)
	}
}

func (v *view) drawEvents(b *strings.Builder, now time.Time) {
	if len(v.events) == 0 {
		return
	}
	b.WriteString("\nlast events:\n")
	for i := range v.events {
		e := &v.events[i]
		fmt.Fprintf(b, "  %s ago  %s  %s\n", duration.HumanDuration(now.Sub(lastSeen(e))), e.Reason, e.Message)
	}
}
