package controllers

import (
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
)

// mostNote is how many bytes of a note the API server takes; it refuses an event with more.
const mostNote = 1024

// shortNotes cuts the notes of events to what the API server takes.
type shortNotes struct{ events }

func (s shortNotes) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	s.events.Eventf(regarding, related, kind, reason, action, "%s", cut(fmt.Sprintf(note, args...), mostNote))
}

// cut is the beginning of a text, at most longest bytes of it. What is left out is shown by three
// dots. No character is cut in two: the API server would store another one than was written, which
// would be written again and again.
func cut(text string, longest int) string {
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
