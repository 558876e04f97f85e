package ibv

import (
	"fmt"
	"time"
)

// eventKind is an asynchronous event, with the values of libibverbs (enum ibv_event_type).
type eventKind int

// scope says what an event ends.
type scope uint8

const (
	endsNothing scope = iota // it is reported; whoever waits for an answer ends by its limit
	endsOwner                // the connection whose queue pair it names
	endsDevice               // everything on the device
)

// eventKinds are what events are called and what they end. The C half (verbs.c) checks their number
// and order at compile time.
//
// A port that is down ends nothing: a NIC sends again for a while, so a link that flaps is not
// noticed, and a longer outage ends requests by the NIC's retries or by the limits of their queue
// pairs.
var eventKinds = [...]struct {
	name string
	ends scope
}{
	// a completion queue is over its bound; QP_FATAL follows for its queue pairs
	0:  {"CQ_ERR", endsNothing},
	1:  {"QP_FATAL", endsOwner},
	2:  {"QP_REQ_ERR", endsOwner},
	3:  {"QP_ACCESS_ERR", endsOwner},
	4:  {"COMM_EST", endsNothing},
	5:  {"SQ_DRAINED", endsNothing},
	6:  {"PATH_MIG", endsNothing},
	7:  {"PATH_MIG_ERR", endsNothing},
	8:  {"DEVICE_FATAL", endsDevice},
	9:  {"PORT_ACTIVE", endsNothing},
	10: {"PORT_ERR", endsNothing},
	11: {"LID_CHANGE", endsNothing},
	12: {"PKEY_CHANGE", endsNothing},
	13: {"SM_CHANGE", endsNothing},
	14: {"SRQ_ERR", endsNothing},
	15: {"SRQ_LIMIT_REACHED", endsNothing},
	16: {"QP_LAST_WQE_REACHED", endsNothing},
	17: {"CLIENT_REREGISTER", endsNothing},
	18: {"GID_CHANGE", endsNothing},
	19: {"WQ_FATAL", endsNothing}, // of a kind of queue that this package does not make
}

func (k eventKind) known() bool { return k >= 0 && int(k) < len(eventKinds) }

// String is the event's name in libibverbs.
func (k eventKind) String() string {
	if !k.known() {
		return fmt.Sprintf("event %d", int(k))
	}
	return eventKinds[k].name
}

// ends says what the event ends.
func (k eventKind) ends() scope {
	if !k.known() {
		return endsNothing
	}
	return eventKinds[k].ends
}

// noteEvery is how often an event of one kind is noted in a log at most. What raises events again
// and again, such as a port that flaps, or a peer that breaks one queue pair after the other, would
// fill it otherwise.
const noteEvery = time.Minute

// notes bounds how often the events of a device are noted. One goroutine uses it.
type notes [len(eventKinds) + 1]time.Time // when each kind was last; all unknown kinds are one

// due reports whether an event that comes at now is to be noted.
func (n *notes) due(k eventKind, now time.Time) bool {
	of := len(eventKinds)
	if k.known() {
		of = int(k)
	}
	if last := n[of]; !last.IsZero() && now.Sub(last) < noteEvery {
		return false
	}
	n[of] = now
	return true
}
