package volumes

import (
	"errors"
	"time"
)

// Span is a time that a process measured by its own clock.
type Span = time.Duration

// Content says what the memory beside a stored state is.
type Content uint8

// Contents.
const (
	// Nothing: the memory does not count. A process that finds this empties it.
	Nothing Content = iota

	// Taken: the memory has all that was answered. What a new primary does before it serves may
	// not be done yet.
	Taken

	// Served: it was served, or was about to be.
	Served
)

// State is what a process stores beside its memory, for the next process of its pod. It has to be
// lost whenever the memory is: they lie in the same volume of the pod.
type State struct {
	// Process is the number of the newest process of the pod.
	Process uint64

	// First is the process that began with nothing stored, or nothing that counts. Those since then
	// found what the one before them had stored. 0 = not known: an earlier program stored this. Who
	// makes a content up that was not found (New) says that the first is the next process.
	First uint64 `json:",omitzero"`

	View    View
	Content Content

	// WaitsFor is the joining copy that was promised to be waited for.
	WaitsFor Proc

	// Backup says that the files beside this have all that the backup of View had, a process of
	// this pod. No process of the pod has obeyed a view since that leaves it out. Only with content
	// Nothing, and where the host's files outlive a process (Host.Durable).
	Backup bool `json:",omitzero"`
}

// stands reports whether the process that stored s may stand for one that a view names: it found,
// by way of all in between, what that one had stored. Views of before say of no process which one
// it was (0), and earlier programs not what they found (first 0). But numbers go on from what is
// found, so a lower one than the named found nothing of it.
func (s State) stands(named Proc) bool { return stands(s.First, named.Process, s.Process) }

func stands(first, named, process uint64) bool {
	return named == 0 || first <= named && named <= process
}

// Alone reports whether the memory has all that was answered, whatever others do.
func (s State) Alone() bool {
	return s.Content != Nothing && s.View.Backup == (Proc{}) && s.WaitsFor == (Proc{})
}

// Host is the memory server of a member. Its methods may wait, and are called by one goroutine at a
// time.
type Host interface {
	// Save stores s in the place of what was stored. After an error either may be stored.
	Save(s State) error

	// Close ends the stream of changes from the source, and returns when none is being applied.
	Close()

	// Prepare makes the memory of a copy one that can be served: the ledger is read, locks say
	// REPAIR. It can be repeated.
	Prepare() error

	// Durable reports whether a copy has its changes in files before they count as applied
	// (Member.Acked), so that the files of a backup have all that was answered when its process
	// ends.
	Durable() bool

	// Restore makes the memory, which is empty, what the files have that an earlier process wrote
	// as a backup. After an error the memory is not to be used, but Restore may be repeated.
	Restore() error

	// MayLack reports whether the files may lack what was answered last, since the machine stopped
	// before that was on disk, and nobody has accepted that. Files that count for nothing lack
	// nothing. It is asked once, when the process begins.
	MayLack() bool

	// Drain returns when the backup has applied all changes, and all requests that were executed
	// are answered. It waits for a second at most.
	Drain(backup Proc) error

	// Return tells the backup that its permission is used no more (Member.Return). It may get lost:
	// then the backup waits the permission out.
	Return(backup Proc, turn uint64)
}

// Times of permissions.
const (
	// AskInterval is how often a primary asks for permission, and the stream says that it lives.
	AskInterval = 250 * time.Millisecond

	// granted is how long a permission lasts for the one that gives it, from then on.
	granted = time.Second

	// believed is how long it lasts for the primary, from when it asked.
	believed = granted * 7 / 8

	// unheard is for how long a process is not heard before its end is believed, if another sign of
	// it is there: longer than between two signs of life.
	unheard = 2 * AskInterval

	// tooLate is for how long a copy that answers wait for may lack a change before it counts as
	// missed, though it is heard. Short of that changes are as slow as the copy.
	tooLate = 5 * time.Second
)

// Errors of members.
var (
	// ErrOldView is returned when a process is told a view that is not above the one it obeyed.
	ErrOldView = errors.New("not above the view that was obeyed")

	// ErrNoContent is returned when a view names a process primary that does not have the content.
	ErrNoContent = errors.New("the process does not have the content of the volume")

	// ErrReplaced is returned by a process that is named no more, and ends.
	ErrReplaced = errors.New("another process was named; this one ends")

	// ErrNotPrimary is returned when a process is asked for what only the primary of a view does.
	ErrNotPrimary = errors.New("not the primary of that view")

	// ErrTaken is returned when a process offers its changes to a copy that takes those of another
	// one, or of none any more.
	ErrTaken = errors.New("the copy does not take the changes of that process")

	// ErrBehind is returned when answers are to wait for a copy that has not applied all that it
	// was sent, or gives no permission.
	ErrBehind = errors.New("the copy is not ready to be waited for")

	// ErrPromised is returned when a copy is to join a primary that already waits for another one.
	ErrPromised = errors.New("the primary waits for another copy")
)
