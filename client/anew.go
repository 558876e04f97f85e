package client

import (
	"strconv"
	"strings"
)

// An index that lost its data is made anew when its owner says so. It is another index then, with
// another identity: that of its object, "/", and a count that grows. Nothing of the former one is
// in it, and its servers and their map are others.
//
//   - The client goes on with the later incarnation once a server or an endpoint names it. It never
//     goes back, and never to an index of another object.
//   - A call belongs to the incarnation that its client knew when it began. If that is over before
//     the call has an answer, the call ends: with ErrUnknown if an attempt may have made a change,
//     else with ErrDataLost.
//   - A server of a later incarnation may have the address of a former one, and the client does not
//     know yet. So requests name their incarnation, streams of operations (dostream.HeaderIndex)
//     and scans (ScanRequest.index), and a server of another one does nothing of them. Otherwise a
//     load could succeed of which a part went into the former index, and pairs of the new index
//     could come behind those of the former one. Servers of versions that do not know the header
//     take the operations: then it is as long as the client does not know.

// madeAnew reports whether an identity is that of a later incarnation of the same index.
func madeAnew(former, identity string) bool {
	object, count := incarnation(identity)
	was, before := incarnation(former)
	return object == was && count > before
}

// incarnation returns the parts of an identity. The count of an index that was never made anew is
// 0.
func incarnation(identity string) (object string, count uint64) {
	object, text, ok := strings.Cut(identity, "/")
	if !ok {
		return identity, 0
	}
	count, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return identity, 0
	}
	return object, count
}

// anewError is the error of a call under way when the index was made anew. It wraps ErrDataLost.
type anewError struct{ index string }

func (e anewError) Error() string {
	return "it was made anew, as " + e.index + ", since the call began; calls from now on use the new one"
}

func (anewError) Unwrap() error { return ErrDataLost }

// incarnationError is the error of a call that began under an earlier view, if v is of another
// incarnation.
func (v *view) incarnationError(began *view) error {
	if v.m.Index == began.m.Index {
		return nil
	}
	return anewError{v.m.Index}
}
