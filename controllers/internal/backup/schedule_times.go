package backup

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// wallTimes are the times of a schedule, by a clock at the wall of a time zone. The fields are
// evaluated as if they were of UTC, which has no gaps, and times at the wall are told as such.
//
// Where the clock is set forward it leaves times out, and where it is set back it shows some twice.
// A schedule of chosen hours is due once each day all the same: a time that is left out is due when
// the clock passes it, and one that is shown twice is due the first time. A schedule of every hour
// is due whenever the clock shows one of its times, so that backups stay equally far apart.
type wallTimes struct {
	fields    *cron.SpecSchedule
	zone      *time.Location
	everyHour bool
}

// parseSchedule reads a schedule.
func parseSchedule(spec *dmv1.DMBackupScheduleSpec) (cron.Schedule, error) {
	name := cmp.Or(spec.TimeZone, "Etc/UTC")
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("timeZone %q: write a name of the IANA database, such as Europe/Berlin", name)
	}
	if strings.Contains(spec.Schedule, "TZ") {
		return nil, fmt.Errorf("schedule %q: write the time zone in timeZone", spec.Schedule)
	}
	times, err := cron.ParseStandard("TZ=UTC " + sevenIsSunday(spec.Schedule))
	fields, ok := times.(*cron.SpecSchedule)
	if err == nil && !ok { // @every, which is of no clock and may be of seconds
		err = errors.New("it has no times")
	}
	if err != nil {
		return nil, fmt.Errorf("schedule %q: %w: write five fields, such as 30 2 * * *", spec.Schedule, err)
	}
	const allHours = 1<<24 - 1
	return &wallTimes{fields: fields, zone: zone, everyHour: fields.Hour&allHours == allHours}, nil
}

// sevenIsSunday is a schedule whose last field calls Sunday 0 and not 7, which the library does not
// know and crontabs may have.
func sevenIsSunday(schedule string) string {
	fields := strings.Fields(schedule)
	if len(fields) != 5 {
		return schedule
	}
	parts := strings.Split(fields[4], ",")
	for i, part := range parts {
		days, step, stepped := strings.Cut(part, "/")
		from, to, ranged := strings.Cut(days, "-")
		first, err := strconv.Atoi(from)
		by, err2 := 1, error(nil)
		if stepped {
			by, err2 = strconv.Atoi(step)
		}
		switch {
		case part == "7":
			parts[i] = "0"
		case ranged && to == "7" && err == nil && err2 == nil && first >= 0 && by > 0:
			var all []string
			for day := first; day <= 7; day += by {
				all = append(all, strconv.Itoa(day%7))
			}
			parts[i] = strings.Join(all, ",")
		}
	}
	fields[4] = strings.Join(parts, ",")
	return strings.Join(fields, " ")
}

// wall is what a clock shows at a time that has its zone.
func wall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// clockChanges is more than a zone has within the five years for which the fields are looked
// through.
const clockChanges = 64

// Next is the first time of the schedule after another one; zero = there is none within years. It
// goes from one change of the clock to the next: in between, wall and time are equally far apart.
func (s *wallTimes) Next(after time.Time) time.Time {
	t := after.In(s.zone)
	shown := wall(t) // times at the wall until here are over
	for range clockChanges {
		from, until := t.ZoneBounds()
		if !from.IsZero() && !s.everyHour {
			// Times that were shown before the clock was set back are shown for the second time.
			if before := wall(from.Add(-time.Second)); before.After(shown) {
				shown = before
			}
		}
		next := s.fields.Next(shown)
		if next.IsZero() {
			return next
		}
		if due := t.Add(next.Sub(wall(t))); until.IsZero() || due.Before(until) {
			return due.In(after.Location())
		}
		t = until.In(s.zone)
		shown = wall(t).Add(-time.Second) // what is shown at the change itself counts
		if next.Before(wall(t)) && !s.everyHour {
			return t.In(after.Location()) // it was left out
		}
	}
	return time.Time{}
}
