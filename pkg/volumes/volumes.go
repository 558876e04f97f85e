// Package volumes decides which process answers for a volume, so that never two do, and never one
// that lacks a change that was answered.
//
// A volume is what one memory server holds: its memory and its ledger. A copy of it is a pod. The
// primary executes all requests and sends each change of its memory, in order, to its backup. An
// answer waits until the backup has applied what the answer depends on. [Step] is the operator's
// part: a pure function from what it observes to what it does next. [Member] is the part of a
// process that holds a copy. Neither knows a network, a file or Kubernetes.
//
// # Who is primary
//
// A [View] says so. The record holds one view, and changes by compare-and-swap from each to the
// next one. The operator tells servers only what the record says. A server obeys higher views only.
//
// These rules make it safe. Each names who keeps it.
//
//  1. A view names processes. A backup whose process restarted is nobody: what it had applied is
//     not known to it. It empties its memory and joins anew, but see 9. (Member)
//  2. The primary answers only if each process that it waits for has applied what the answer
//     depends on, and permits it to answer. It waits for the backup of its view, and for a joining
//     copy from before it calls that one in sync. (Member.MayAnswer)
//  3. A permission is over for the process that uses it before it is over for the one that gave it,
//     as long as their clocks run at the same rate within an eighth. A backup that opens waits its
//     last one out before it stores that it opens. (Member.Grant, Member.Permitted, Member.Obey)
//  4. A primary says that a joining copy is in sync once the answers wait for that copy, this
//     promise is stored, and the copy has applied all that was answered before. From then on it
//     waits for that copy until a higher view ends the promise. (Member.WaitFor)
//  5. A process that was primary and restarts goes on by itself only if its stored state says that
//     it waits for nobody. Else it is stopped until a view names it alone. (Member.Start)
//  6. A view (P, J) is recorded in the place of one of P only if P said, in this one, that J is in
//     sync, or if J is its backup already. A view of B alone is recorded only in the place of one
//     whose backup B is, or see 7. (Step)
//  7. Nobody but its primary hears of a view before the primary serves in it. So a primary that was
//     replaced keeps its memory until the next one has stored that it has the content. If the
//     process that was to open ends before that, the earlier primary is named again. (Step)
//  8. The pods that a view names are marked before the view is recorded. A pod is deleted only if
//     it was not marked since it was observed, and a view that was read after that does not need
//     it. So an operator that stood still does not delete what was named since. (Step's caller)
//  9. Where files outlive processes a backup has each change in its files before the change counts
//     as applied, and it stores that it is the backup of its view. A later process of its pod keeps
//     these files until it obeys a view that leaves the backup out, and takes no changes before. As
//     long as the record names the backup, and its primary has nothing any more, or what may lack
//     something, a view may name that later process primary. It waits a permission out, from its
//     own begin on, and reads the files. (Member.Obey, Member.Attach, Step)
//
// Why nobody lacks an answered change: let P be the primary of a view n, with all that was
// answered. A process other than P serves in a later view only if it was backup in a view of P. By
// 6 and 4 it had all that was answered when that view was recorded, and P waits for it, by 2, until
// P obeys a view that does not name it. P obeys recorded views only, so the record left that backup
// behind then, and by 6 no view names its process any more. So whatever P answers, the process that
// may be next has. A process that opens applies nothing more. By 3 P's permission is over when it
// serves, and it gives no other one. So P answers nothing afterwards. By 5 that is true as well if
// P restarts meanwhile: its stored state names the backup, or has the promise.
//
// Why files may take the place of their process in rule 9: let the record be (P, B). As above P
// answers nothing that B has not applied, so nothing that B's files lack, however long P goes on
// after B has ended: for B applies nothing more, and no other process is taken for it. A record
// that names B has done so since B was in sync, since a process that was left out joins anew with
// another number. The last permission that B gave was given before the later process began, so
// that one has waited it out when it stores that it has the content, and it gives none. If it ends
// before that, the next one has the same files, and no process of the pod has served: so it may be
// named again, as P may. If the record is (P), P may have answered without B, and B's files are of
// no use by themselves.
//
// Files may lack something, if their machine stopped before all of it was on disk, and answers did
// not wait for that. Their process says so, and refuses to serve. If those of the backup lack
// nothing, as those whose process only ended, they have all that was answered as above, and the
// view names them in the place of the primary's, which are kept until they are served (7). As long
// as the backup's process does not answer, nobody is named. (Step)
//
// Why a view of P again is safe in rule 7: nobody serves in view n before it stored the content.
// Process numbers count up within a pod, and each process says which was the first whose stored
// state it found (Report.First). So a later process of the pod that found the state of the named
// one, and no content in it, shows that the named one has stored none, and that it has ended. What
// was answered is in the memory of the earlier primary, which the record names, and which has not
// obeyed view n by the rule itself. A pod that loses its memory loses what was stored as well: its
// next process found nothing of the named one, which may have served while the earlier primary was
// cut off. Then nobody is named until a person decides, as if the pod were gone.
//
// A process that lost its memory and is told the first view late begins the volume anew: it has
// content, of another volume. It found nothing of the processes of its pod before the loss. A view
// may name one of these nevertheless, if its operator had observed that one before. Then the new
// one does not stand for it: Step takes the named process for ended, and the new one does not lead
// in that view. Else it would serve, all others would be told of the view, and whoever still has
// the content would give it up.
package volumes

import "fmt"

// Proc is one process of a pod. The zero value is nobody.
type Proc struct {
	// Pod is its UID.
	Pod string

	// Process counts the processes of the pod from 1 on. 0 = any of them, which only the first view
	// of a volume says.
	Process uint64
}

// String returns pod and number.
func (p Proc) String() string {
	if p == (Proc{}) {
		return "nobody"
	}
	return fmt.Sprintf("%s#%d", p.Pod, p.Process)
}

// View says who answers for a volume.
type View struct {
	// Number is higher than those of all views before. 0 = there is none yet.
	Number uint64

	// Primary is the process that was named. A later process of its pod that still has the content
	// stands for it.
	Primary Proc

	// Backup has all that was answered. Zero: there is none.
	Backup Proc

	// Earlier was the primary before a backup was named. It keeps the content until that serves.
	Earlier Proc
}

// String returns number, primary and backup.
func (v View) String() string { return fmt.Sprintf("%d (%v, %v)", v.Number, v.Primary, v.Backup) }

// names reports whether v names the process.
func (v View) names(p Proc) bool { return v.Primary == p || v.Backup == p }

// Role is what a process is for its volume. A process has one way:
//
//	Joining ──> Backup ──> Opening ──> Primary <──> Stopped
//	   └───────────┴──────────────────────┴────────────┴──> Replaced
//
// The first primary of a volume goes from Joining to Primary. A process that finds the content
// begins as Primary or Stopped.
type Role uint8

// Roles.
const (
	// Joining has an empty memory, or one that a primary fills.
	Joining Role = iota

	// Backup has all that was answered, as long as the primary waits for it.
	Backup

	// Opening was named primary, and does not answer yet.
	Opening

	// Primary executes requests.
	Primary

	// Stopped has the content and executes nothing, because its process restarted or the operator
	// asked it to.
	Stopped

	// Replaced is named no more. Its process ends, and the next one begins with an empty memory.
	Replaced
)

// String returns the name of the role.
func (r Role) String() string {
	return [...]string{"joining", "backup", "opening", "primary", "stopped", "replaced"}[r]
}

// holds reports whether a process of the role has the content of the volume, stored.
func (r Role) holds() bool { return r == Primary || r == Stopped }

// Report is what a process says of itself.
type Report struct {
	Proc Proc

	// First is the number of the first process of the pod whose stored state this one found, by way
	// of all in between; its own if it found none. 0 = it does not say, as earlier programs.
	First uint64

	Role Role

	// View is the highest view that it obeyed or, while it joins, heard of.
	View View

	// Source is the process whose changes it applies; zero for a primary and for a free copy.
	Source Proc

	// Was is an earlier process of the pod, which was a backup, if this one joins and still has the
	// files of that. They have all that was answered as long as the record names that backup.
	Was Proc

	// MayLack says that the content of a stopped process, or the files of Was, may lack what was
	// answered last: the machine stopped before that was on disk. The process refuses to serve it
	// until somebody accepts that.
	MayLack bool

	// Joins is the copy that joins this primary. Waits says that answers wait for it, and InSync
	// that it has all that was answered, and that this is stored.
	Joins         Proc
	Waits, InSync bool

	// Misses says for how long a primary has heard nothing of a process that it waits for, and a
	// backup nothing of its primary. A process that has lacked a change for 5 s counts as missed
	// for as long, however often it is heard.
	Misses Span
}
