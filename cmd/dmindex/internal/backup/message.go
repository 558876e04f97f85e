package backup

import (
	"crypto/rand"
	"errors"
	"strings"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/pkg/keyrange"
)

// Message is what a report says of an error. The report is in the status of a pod, and in that of
// the backup or the index: it names no keys, which errors of the client do.
func Message(err error) string {
	text := err.Error()
	for _, e := range clientErrors(err) {
		hidden := *e
		hidden.Key, hidden.Range = nil, "(not shown)"
		text = strings.ReplaceAll(text, e.Error(), hidden.Error())
	}
	return keyrange.Hider{Salt: []byte(rand.Text())}.Text(text)
}

// clientErrors are the errors of the client that err wraps.
func clientErrors(err error) (all []*client.Error) {
	if e, ok := err.(*client.Error); ok {
		return []*client.Error{e}
	}
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			all = append(all, clientErrors(err)...)
		}
	default:
		if inner := errors.Unwrap(err); inner != nil {
			all = clientErrors(inner)
		}
	}
	return all
}
