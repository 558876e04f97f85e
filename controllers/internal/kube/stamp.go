package kube

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Clocks of nodes are wrong at times. What the operator or a kubelet wrote by a clock that was
// ahead must not hold until that time comes, once the clock is right. A later look alone cannot
// tell which clock was wrong, that of the writer or that of the reader: a reader whose clock is
// behind would find everything to be of the future. So the API server is the witness. It notes by
// its own clock when it stored a change of an object, and nobody writes of a time after that.

// Written is when the API server stored the last change of object by this field manager; empty =
// by any. It is not before the object was created.
func Written(object client.Object, manager client.FieldOwner) time.Time {
	written := object.GetCreationTimestamp().Time
	for _, e := range object.GetManagedFields() {
		if (manager == "" || e.Manager == string(manager)) && e.Time != nil && e.Time.After(written) {
			written = e.Time.Time
		}
	}
	return written
}

// Stamp is a time that a field manager wrote into object when it was now: at, unless it is of a
// clock that was ahead. Then it is the latest that it can be.
func Stamp(object client.Object, manager client.FieldOwner, at, now time.Time) time.Time {
	if written := Written(object, manager); at.After(now) && at.After(written) {
		return written
	}
	return at
}
