// Package schedule has the points at which a simulated goroutine can be stopped.
//
// The simulator switches goroutines where they wait. Processors switch anywhere. To find what that
// breaks, hack/schedule writes a copy of the simulated packages in which a [Point] stands before
// each statement that touches anything but local variables, and an [At] behind each atomic access
// inside an expression; hack/sim builds that copy. The sources themselves have no points, so a
// release build is the same as if this package did not exist.
//
// A world of package simenv arms some of the points and is asked each time one of them is reached.
// One world at a time uses the points of a program.
package schedule

import (
	"math"
	"strings"
	"sync"
)

// Kind is what a statement with a point does.
type Kind uint8

// The kinds of points.
const (
	Other  Kind = iota
	Lock        // locks, unlocks, waits or wakes
	Access      // an atomic access
)

// Site is a point of the program. Its number is its index in the table.
type Site struct {
	Name string // package/file.go:line function
	Hash uint64 // of package, function and place in it: the same when other code changes
	Kind Kind
}

// File is the file of the site.
func (s *Site) File() string {
	file, _, _ := strings.Cut(s.Name, ":")
	return file
}

// Most is how many points a program may have.
const Most = 1 << 16

var (
	sites   []Site // of this build; the file that hack/schedule adds fills it
	armed   [Most]bool
	left    uint64 = math.MaxUint64 // points until the next change point
	reached        = func(uint32, bool) {}

	using sync.Mutex
)

// Sites is the table of this build: empty in a build without points. Read only.
func Sites() []Site { return sites }

// Use gives the points to a caller until it calls Stop: arm says which are armed. When one of these
// is reached do is called, and when the change point is, which may be any point; change says so.
// Others that call Use wait.
func Use(arm []uint32, next uint64, do func(site uint32, change bool)) {
	using.Lock()
	for _, site := range arm {
		armed[site] = true
	}
	left, reached = next, do
}

// Stop ends what Use began; arm is the same as there.
func Stop(arm []uint32) {
	for _, site := range arm {
		armed[site] = false
	}
	left, reached = math.MaxUint64, func(uint32, bool) {}
	using.Unlock()
}

// Change says after how many points from now the next change point is; 0 = never.
func Change(points uint64) { left = points }

// Point is a schedule point.
func Point(site uint32) {
	if left--; left == 0 || armed[site%Most] {
		reached(site, left == 0)
	}
}

// At is a point between the evaluation of v and its use.
func At[T any](site uint32, v T) T {
	Point(site)
	return v
}
