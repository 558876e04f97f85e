package backup

import (
	"slices"
	"strings"
	"time"
)

// Retention must not delete the last copy of what an index had. An index that was made anew is
// empty, and dumps of it are complete and new; so may be those of an index whose keys somebody
// deleted, and those of another index that the schedule was pointed at. None of these is a
// successor of the data, so age and number alone do not say which backup is the last good one.

// succession are the backups of an index that follow each other: those that have artifacts, or
// copies of such, which somebody made or restored. A copy has no artifact, so it stands for none.
type succession struct {
	index  string
	copied bool
}

// incarnation is an index from its making until it is made anew or deleted.
type incarnation struct {
	of       succession
	identity string
}

// byAge are backups, the newest first, by the API server's clock: the times for which they were
// made are of the operator's clock, which may have been wrong. A copy comes after what it is of.
func byAge(backups []scheduledBackup) []scheduledBackup {
	sorted := slices.Clone(backups)
	slices.SortFunc(sorted, func(a, b scheduledBackup) int {
		if c := b.begun.Compare(a.begun); c != 0 {
			return c
		}
		if a.copied != b.copied {
			return map[bool]int{true: 1, false: -1}[a.copied]
		}
		return strings.Compare(b.name, a.name)
	})
	return sorted
}

// expired are the backups that retention deletes: complete ones beyond keepLast or maxAgeHours,
// counted for each index, and failed ones beyond keepFailed. Ones that are not over stay. Complete
// ones that are never deleted, whatever their number and age: the newest of each incarnation of an
// index, and the one that the newest of the index has collapsed from.
//
// Nor do backups get old by the operator's clock alone: their age is counted until the time that
// follows the newest complete one of the index, at most. So neither a clock that jumps nor a
// schedule that makes nothing any more deletes what is left.
func expired(v scheduleView) (names []string) {
	newest := byAge(v.backups)
	complete, until := map[succession]int{}, map[succession]time.Time{}
	seen, before := map[incarnation]bool{}, map[string]string{}
	failed := 0
	age := time.Duration(v.spec.Retention.MaxAgeHours) * time.Hour
	for _, b := range newest {
		switch {
		case b.going, b.broken, b.active():
		case b.complete:
			of := succession{b.index, b.copied}
			if complete[of]++; complete[of] == 1 {
				until[of] = v.now
				if next := v.times.Next(b.begun); !next.IsZero() && next.Before(v.now) {
					until[of] = next
				}
			}
			if _, judged := before[b.index]; !judged {
				before[b.index] = ""
				if from := collapsedFrom(newest, b.index); from != nil {
					before[b.index] = from.name
				}
			}
			is := incarnation{of, b.identity}
			kept := !seen[is] || before[b.index] == b.name
			seen[is] = true
			if !kept && (complete[of] > int(v.spec.Retention.KeepLast) || age > 0 && until[of].Sub(b.begun) > age) {
				names = append(names, b.name)
			}
		default:
			if failed++; failed > int(v.spec.Retention.KeepFailed) {
				names = append(names, b.name)
			}
		}
	}
	return names
}

// collapsedBy is how many times fewer keys than an earlier backup the newest one has at least, if
// the keys of an index have collapsed. Indexes whose keys expire may have a few times fewer at
// night than by day.
const collapsedBy = 10

// newestOf is the newest complete backup of an index; nil = there is none. The newest come first.
func newestOf(newest []scheduledBackup, index string) *scheduledBackup {
	i := slices.IndexFunc(newest, func(b scheduledBackup) bool { return b.index == index && b.complete && !b.going })
	if i < 0 {
		return nil
	}
	return &newest[i]
}

// collapsedFrom is the newest backup of an index with at least collapsedBy times the keys of the
// newest complete one; nil = there is none. The newest come first. It is one backup at most, so
// that what is kept for it is bounded, and there is none once the keys are back or the backup is
// deleted.
func collapsedFrom(newest []scheduledBackup, index string) *scheduledBackup {
	last := newestOf(newest, index)
	if last == nil {
		return nil
	}
	i := slices.IndexFunc(newest, func(b scheduledBackup) bool {
		return b.index == index && b.complete && !b.going && b.keys > last.keys && b.keys/collapsedBy >= last.keys
	})
	if i < 0 {
		return nil
	}
	return &newest[i]
}
