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
//     in whichever index the server had that it reached, else with ErrDataLost. An operation on
//     one key runs in one index, so it needs no more than that.
//   - A scan is many requests. Each names its incarnation (ScanRequest.index), because a server of
//     a later one may have the address of a former one, and its pairs must not come behind those
//     of the former index.

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

// other is the error of a call that began under an earlier view, if v is of another incarnation.
func (v *view) other(began *view) error {
	if v.m.Index == began.m.Index {
		return nil
	}
	return anewError{v.m.Index}
}
