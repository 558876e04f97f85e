// Package report is how the operator says what it finds and does: conditions, events, lines of the
// log, and statuses. The API server takes so many bytes of each, so texts are cut here; what comes
// again and again is told once; and figures alone are not written more often than every 10 s.
package report

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
)

// Events is what the reconcilers need of an event recorder.
type Events interface {
	Eventf(regarding runtime.Object, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// MostInNote bounds what an event lists, in bytes: the API server takes notes of 1 KiB.
const MostInNote = 800

// mostNote is how many bytes of a note the API server takes; it refuses an event with more.
const mostNote = 1024

// ShortNotes cuts the notes of events to what the API server takes.
type ShortNotes struct{ Events }

// Eventf implements Events.
func (s ShortNotes) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	s.Events.Eventf(regarding, related, kind, reason, action, "%s", Cut(fmt.Sprintf(note, args...), mostNote))
}

// Cut is the beginning of a text, at most longest bytes of it. What is left out is shown by three
// dots. No character is cut in two: the API server would store another one than was written, which
// would be written again and again.
func Cut(text string, longest int) string {
	const dots = "..."
	if len(text) <= longest {
		return text
	}
	end := max(0, longest-len(dots))
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + dots
}

// Numbered is an action with a number. Of events that differ in nothing but their notes the
// recorder keeps the first and counts the others: a number in the action keeps them apart.
func Numbered(what string, number uint64) string { return what + strconv.FormatUint(number, 10) }

// Listed joins what an event has room for.
func Listed(all []string) string {
	text := all[0]
	for i, next := range all[1:] {
		if len(text)+len(next) > MostInNote {
			return fmt.Sprintf("%s; and %d more", text, len(all)-1-i)
		}
		text += "; " + next
	}
	return text
}
