package partition

import (
	"fmt"
	"strings"
)

// Describe describes a map, or the change from old to new: a line for each range of new, and what
// moved. old may be nil.
func Describe(old, new *Map) string {
	var b strings.Builder
	if old == nil {
		fmt.Fprintf(&b, "generation %d, %d servers, %d ranges\n", new.Generation, len(new.Servers), len(new.Ranges))
	} else {
		fmt.Fprintf(&b, "generation %d -> %d, %d -> %d servers, %d -> %d ranges\n",
			old.Generation, new.Generation, len(old.Servers), len(new.Servers), len(old.Ranges), len(new.Ranges))
	}
	for i := range new.Ranges {
		s := new.Span(i)
		fmt.Fprintf(&b, "  %-40v %s, epoch %d", s, new.name(s.Owner), s.Epoch)
		if was := old.ownersOf(s); was != "" {
			fmt.Fprintf(&b, ", was %s", was)
		}
		b.WriteByte('\n')
	}
	for _, p := range new.Planned {
		fmt.Fprintf(&b, "  planned: %s to %s\n", Interval(p.Start, p.End), new.name(p.To))
	}
	if old == nil {
		return b.String()
	}
	for _, s := range new.Servers {
		if _, ok := old.Server(s.ID); !ok {
			fmt.Fprintf(&b, "  joined: %s\n", new.name(s.ID))
		}
	}
	for _, s := range old.Servers {
		if _, ok := new.Server(s.ID); !ok {
			fmt.Fprintf(&b, "  left: %s\n", old.name(s.ID))
		}
	}
	return b.String()
}

func (m *Map) name(id uint32) string {
	if s, ok := m.Server(id); ok && s.Name != "" {
		return s.Name
	}
	return fmt.Sprintf("server %d", id)
}

// ownersOf lists the other owners that had parts of s, in key order; empty if there are none.
func (m *Map) ownersOf(s Span) string {
	if m == nil {
		return ""
	}
	var names []string
	for i := m.At(s.Start); i < len(m.Ranges); i++ {
		if len(s.End) > 0 && i != m.At(s.Start) && string(m.Ranges[i].Start) >= string(s.End) {
			break
		}
		name := m.name(m.Ranges[i].Owner)
		if m.Ranges[i].Owner != s.Owner && (len(names) == 0 || names[len(names)-1] != name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " and ")
}
