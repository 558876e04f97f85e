//schedule:off a memory server runs it under its lock, and the servers of poolsim in one piece

package pool

import (
	"errors"
	"fmt"
	"slices"
)

// ErrEpoch is returned when a client says that it passed an epoch that the memory server has not
// reached: it learned of it from an earlier process of that server. The client has to be given up.
var ErrEpoch = errors.New("epoch is not reached yet")

// EpochTable is what one memory server knows about reclamation in one index: which of its clients
// may still follow addresses of nodes that were taken out of the tree. It is a state machine
// without time, goroutines or locks; it belongs to one goroutine at a time.
//
// A client has passed an epoch when it holds no address any more that it got before it learned of
// that epoch. An epoch is safe when every client has passed it that is not fenced. The current
// epoch grows by one when every client has passed it and some client wants one that is not safe
// yet; so epochs stand still while nobody has garbage.
//
// The rule for whoever takes a node out of the tree: when it is out, note the epoch that you
// learned last, e; use the node again once e+2 is safe. You had not passed e+1 when it went out, so
// the current epoch became e+2 afterwards only. Whoever passed e+2 learned of it later still, and
// dropped what it had got before. One less would not do: others may have passed e+1 before, and got
// the address then.
//
// A table lives as long as the process of its memory server. It need not be stored:
//
//   - Everybody whom an earlier process knew, and whose fence is not complete, is Found: it has
//     passed nothing, holds all epochs up, and is renewed or fenced in time. Nothing that was safe
//     becomes unsafe by that; it only takes longer.
//   - A client that outlived the old process (of tcp it lost its connections, of shm it may not
//     have noticed) reports epochs of the old count. What it passed is mostly above the new count,
//     and is refused: ErrEpoch. The exception is a client that had passed no more than the first
//     epoch. It may go on, and pass the second by what the old process told it: that is one epoch
//     early, and harmless, since no garbage waits for an epoch below the third; to learn of the
//     third it had to pass the second in the old count too.
//   - What a client noted as safe before stays so: clients that come later cannot find the node.
type EpochTable struct {
	epoch   uint64
	members []member // sorted by client
}

// member is a client that is not fenced, or whose fence is not complete.
type member struct {
	client         uint16
	passed, wanted uint64
}

// NewEpochTable is the table of a server that just started: epoch 1, no clients.
func NewEpochTable() *EpochTable { return &EpochTable{epoch: 1} }

// Join adds a client that holds no addresses yet: it has passed the current epoch. The client is
// told of that epoch before it does anything: a node that it takes out must not be noted under an
// earlier one. A client that is known stays as it is.
func (t *EpochTable) Join(client uint16) (epoch uint64) {
	t.add(client, t.epoch)
	return t.epoch
}

// Found adds a client that an earlier process of the server knew: it may hold any address. A client
// that is known stays as it is.
func (t *EpochTable) Found(client uint16) { t.add(client, 0) }

func (t *EpochTable) add(client uint16, passed uint64) {
	if at, known := t.search(client); !known {
		t.members = slices.Insert(t.members, at, member{client: client, passed: passed})
	}
}

// Leave removes a client whose fence is complete: nothing of it takes effect any more. Before that
// it counts, since it may follow an address, and write there.
func (t *EpochTable) Leave(client uint16) {
	if at, known := t.search(client); known {
		t.members = slices.Delete(t.members, at, at+1)
	}
}

// Renew takes what a client says and answers which epoch is current and which is safe. What a
// client has passed never goes back: calls may overtake each other. Errors, which change nothing:
// ErrEpoch; ErrFenced for a client that is not in the table.
func (t *EpochTable) Renew(client uint16, passed, wanted uint64) (epoch, safe uint64, err error) {
	at, known := t.search(client)
	if !known {
		return 0, 0, fmt.Errorf("client %d has no part in the epochs: %w", client, ErrFenced)
	}
	if passed > t.epoch {
		return 0, 0, fmt.Errorf("client %d passed epoch %d, the current one is %d: %w", client, passed, t.epoch, ErrEpoch)
	}
	m := &t.members[at]
	m.passed, m.wanted = max(m.passed, passed), wanted
	safe = t.Safe()
	if safe == t.epoch && t.wanted() {
		t.epoch++
	}
	return t.epoch, safe, nil
}

// Safe is the lowest epoch that a client in the table has passed; the current one if there are no
// clients.
func (t *EpochTable) Safe() uint64 {
	safe := t.epoch
	for i := range t.members {
		safe = min(safe, t.members[i].passed)
	}
	return safe
}

// wanted reports whether a client wants an epoch that comes after the current one.
func (t *EpochTable) wanted() bool {
	return slices.ContainsFunc(t.members, func(m member) bool { return m.wanted > t.epoch })
}

func (t *EpochTable) search(client uint16) (at int, known bool) {
	return slices.BinarySearchFunc(t.members, client, func(m member, client uint16) int { return int(m.client) - int(client) })
}
